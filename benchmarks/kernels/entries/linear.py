"""Linear layer with bias and GELU against cuBLAS and PyTorch's GELU, and the product alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from asmtune.kernels.matmul import matmul
from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], Any]:
    """Launch twice: cuBLAS with its bias, then the activation."""
    torch.backends.cuda.matmul.allow_tf32 = True
    x, weight, bias = given["x"], given["weight"], given["bias"]
    return lambda: torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias))


def product(given: Inputs) -> Callable[[], Any]:
    """Multiply by `matmul`, without bias, activation or vendor; tuned before it is timed."""
    launch = partial(matmul, given["x"], given["weight"].mT, vendor=False)
    launch()
    return launch


ENTRY = Entry(
    vendor_name="F.gelu(F.linear)",
    vendor_kind="vendor library",
    vendor=vendor,
    group="gemm",
    others={"product": product},
    apart=lambda _, dtype: dtype != "bf16",
    flops=lambda shape: 2.0 * shape["batch"] * shape["M"] * shape["N"] * shape["K"],
    rates={"fp16": "fp16", "bf16": "bf16", "fp32": "tf32"},
)
