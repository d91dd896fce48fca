"""A residual added, the sum kept and normalised: whole rows, several a program."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def kernel(
    x_ptr,
    residual_ptr,
    w_ptr,
    sum_ptr,
    y_ptr,
    rows,
    cols,
    BLOCK: tl.constexpr,
    EACH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute EACH rows a program, one after the other; the weights are read once."""
    c = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + c, mask=c < cols, other=0.0).to(tl.float32)
    first = tl.program_id(0) * EACH
    for row in tl.range(first, min(first + EACH, rows), num_stages=STAGES):
        at = row * cols + c
        x = tl.load(x_ptr + at, mask=c < cols, other=0.0).to(tl.float32)
        x += tl.load(residual_ptr + at, mask=c < cols, other=0.0).to(tl.float32)
        tl.store(sum_ptr + at, x.to(sum_ptr.dtype.element_ty), mask=c < cols)
        rstd = tl.rsqrt(tl.sum(x * x, 0) / cols + 1e-6)
        tl.store(y_ptr + at, (x * rstd * w).to(y_ptr.dtype.element_ty), mask=c < cols)


DTYPES = ("bf16",)

SHAPES = (
    {"rows": 8192, "cols": 4096},
    {"rows": 64, "cols": 8192},
    {"rows": 20000, "cols": 1000},
)


def space() -> Space:
    """Build the space: block, rows a program, stages of the loop and warps."""
    axes = {
        "BLOCK": (256, 1024, 2048, 4096, 8192, 16384),
        "EACH": (1, 2, 4, 8, 16),
        "num_warps": (1, 2, 4, 8, 16),
        "STAGES": (1, 3),
    }
    return held(axes, 1, 128, "BLOCK").where(
        "a block holds a row", lambda BLOCK, cols: cols <= BLOCK < 4 * cols
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random rows and weights."""
    rows, cols = shape["rows"], shape["cols"]
    x, residual = (normal((rows, cols), dtype, device) for _ in range(2))
    arguments = {
        "x_ptr": x,
        "residual_ptr": residual,
        "w_ptr": normal((cols,), dtype, device),
        "sum_ptr": torch.empty_like(x),
        "y_ptr": torch.empty_like(x),
    }
    return launch(kernel, shape, arguments, (rows, "EACH"))
