"""Cross entropy against PyTorch, which writes the logarithms of all shares."""

from __future__ import annotations

import torch

from benchmarks.kernels.entry import Entry

ENTRY = Entry(
    vendor_name="torch.nn.functional.cross_entropy",
    vendor=lambda given: (
        lambda: torch.nn.functional.cross_entropy(given["logits"], given["target"])
    ),
    group="softmax",
)
