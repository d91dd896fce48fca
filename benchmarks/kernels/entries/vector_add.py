"""Vector addition against PyTorch."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import Entry

ENTRY = Entry(
    vendor_name="torch.add",
    vendor=lambda given: lambda: torch.add(given["x"], given["y"]),
    group="element-wise",
)
