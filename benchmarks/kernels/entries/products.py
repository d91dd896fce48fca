"""Matrix products against cuBLAS."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from asmtune.kernels.matmul import MAIN_SHAPES, matmul
from asmtune.kernels.scaled_matmul import by_torch
from benchmarks.kernels.entry import Entry, Inputs, Shape

FLOATS = {"fp16": "fp16", "bf16": "bf16", "fp32": "tf32"}
"""Names of the rates: fp32 is multiplied as tf32."""


def flops(shape: Shape) -> float:
    """Count a product and a sum for each element of each inner extent."""
    return 2.0 * shape.get("batch", 1) * shape["M"] * shape["N"] * shape["K"]


def cublas(given: Inputs) -> Callable[[], Any]:
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


def linear(given: Inputs) -> Callable[[], Any]:
    """Launch twice: cuBLAS with its bias, then the activation."""
    torch.backends.cuda.matmul.allow_tf32 = True
    x, weight, bias = given["x"], given["weight"], given["bias"]
    return lambda: functional.gelu(functional.linear(x, weight, bias))


def product(given: Inputs) -> Callable[[], Any]:
    """Multiply by `matmul`, without bias, activation or vendor; tuned before it is timed."""
    launch = partial(matmul, given["x"], given["weight"].mT, vendor=False)
    launch()
    return launch


ENTRIES = {
    # The mean of fourteen shapes, in halves, represents all.
    "matmul": Entry(
        vendor_name="cuBLAS",
        vendor=cublas,
        group="gemm",
        apart=lambda shape, dtype: dtype != "fp16" or dict(shape) not in MAIN_SHAPES,
        flops=flops,
        rates={**FLOATS, "fp8e4nv": "fp8", "i8": "int8"},
    ),
    "tiled_matmul": Entry(
        vendor_name="torch.matmul",
        vendor=cublas,
        group="template",
        flops=flops,
        rates=FLOATS,
        dtypes=("fp16", "bf16", "fp32"),
    ),
    "linear": Entry(
        vendor_name="F.gelu(F.linear)",
        vendor=linear,
        group="gemm",
        others={"product": product},
        apart=lambda _, dtype: dtype != "bf16",
        flops=flops,
        rates=FLOATS,
    ),
    # torch._scaled_mm at the same granularity, with sums as exact. Scales of groups, and e5m2,
    # have means of their own.
    "scaled_matmul": Entry(
        dtypes=("fp8e4nv",),
        vendor_name="torch._scaled_mm",
        vendor=lambda given: lambda: by_torch(**given),
        group="scaled gemm",
        apart=lambda shape, dtype: shape["GROUP_K"] > 0 or dtype != "fp8e4nv",
        flops=flops,
        rates={"fp8e4nv": "fp8"},
    ),
}
