"""GELU against PyTorch."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import Entry

ENTRY = Entry(
    vendor_name="torch.nn.functional.gelu",
    vendor=lambda given: (
        lambda: torch.nn.functional.gelu(given["x"], approximate=given["approximate"])
    ),
    group="element-wise",
)
