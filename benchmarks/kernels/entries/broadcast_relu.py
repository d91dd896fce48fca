"""ReLU of x plus a row of biases against PyTorch, which takes two kernels for it."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import Entry

ENTRY = Entry(
    vendor_name="torch.relu(x + bias)",
    vendor_kind="eager PyTorch",
    vendor=lambda given: lambda: torch.relu(given["x"] + given["bias"]),
    group="element-wise",
)
