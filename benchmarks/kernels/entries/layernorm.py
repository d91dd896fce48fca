"""LayerNorm against PyTorch, which writes mean and rstd as well."""

from __future__ import annotations

import torch

from asmtune.kernels.layernorm import EPS
from benchmarks.kernels.entry import Entry

ENTRY = Entry(
    vendor_name="torch.native_layer_norm",
    vendor=lambda given: (
        lambda: torch.native_layer_norm(
            given["x"], given["weight"].shape, given["weight"], given["bias"], EPS
        )
    ),
    group="normalisation",
)
