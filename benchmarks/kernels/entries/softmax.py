"""Softmax against PyTorch."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import Entry

ENTRY = Entry(
    vendor_name="torch.softmax",
    vendor=lambda given: lambda: torch.softmax(given["x"], -1),
    group="softmax",
)
