"""Matrix product against cuBLAS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from asmtune.kernels.matmul import MAIN_SHAPES
from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], Any]:
    """Launch cuBLAS, with tensor cores for fp32 as the kernel has it; fp8 with fast sums."""
    torch.backends.cuda.matmul.allow_tf32 = True
    a, b = given["a"], given["b"]
    if a.dtype == torch.float8_e4m3fn:
        one = torch.ones((), device=a.device)
        return lambda: torch._scaled_mm(
            a, b, one, one, out_dtype=torch.float16, use_fast_accum=True
        )
    if a.dtype == torch.int8:
        return lambda: torch._int_mm(a, b)
    return lambda: torch.matmul(a, b)


def beside(shape: Mapping[str, int], dtype: str) -> bool:
    """Say if the row lies outside the fourteen shapes, in halves, whose mean represents all."""
    return dtype != "fp16" or dict(shape) not in MAIN_SHAPES


ENTRY = Entry(
    vendor_name="cuBLAS",
    vendor_kind="vendor library",
    vendor=vendor,
    group="gemm",
    apart=beside,
    flops=lambda shape: 2.0 * shape["batch"] * shape["M"] * shape["N"] * shape["K"],
    rates={"fp16": "fp16", "bf16": "bf16", "fp32": "tf32", "fp8e4nv": "fp8", "i8": "int8"},
)
