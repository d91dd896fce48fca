"""RMSNorm against PyTorch."""

from __future__ import annotations

import torch

from asmtune.kernels.rmsnorm import EPS
from benchmarks.kernels.entry import Entry

ENTRY = Entry(
    vendor_name="torch.nn.functional.rms_norm",
    vendor=lambda given: (
        lambda: torch.nn.functional.rms_norm(
            given["x"], given["weight"].shape, given["weight"], EPS
        )
    ),
    group="normalisation",
)
