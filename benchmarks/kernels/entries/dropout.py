"""Dropout against PyTorch, which writes the mask that this one draws again."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import Entry

ENTRY = Entry(
    vendor_name="torch.native_dropout",
    vendor=lambda given: lambda: torch.native_dropout(given["x"], given["p"], True),
    group="element-wise",
)
