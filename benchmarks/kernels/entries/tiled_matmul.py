"""The template against cuBLAS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], Any]:
    """Launch cuBLAS, with tensor cores for fp32 as well, as the kernel has it."""
    torch.backends.cuda.matmul.allow_tf32 = True
    a, b = given["a"], given["b"]
    return lambda: torch.matmul(a, b)


ENTRY = Entry(
    vendor_name="torch.matmul",
    vendor_kind="vendor library",
    vendor=vendor,
    group="template",
    flops=lambda shape: 2.0 * shape["M"] * shape["N"] * shape["K"],
    rates={"fp16": "fp16", "bf16": "bf16", "fp32": "tf32"},
    dtypes=("fp16", "bf16", "fp32"),
)
