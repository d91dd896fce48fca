"""Softmax backward in two passes: a row sum of products, then the gradient."""

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
    p_ptr,
    dy_ptr,
    y_ptr,
    cols,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute one row a program, in blocks of BLOCK."""
    start = tl.program_id(0).to(tl.int64) * cols
    acc = tl.zeros([BLOCK], tl.float32)
    for i in tl.range(0, cols, BLOCK, num_stages=STAGES):
        c = i + tl.arange(0, BLOCK)
        p = tl.load(p_ptr + start + c, mask=c < cols, other=0.0).to(tl.float32)
        acc += p * tl.load(dy_ptr + start + c, mask=c < cols, other=0.0).to(tl.float32)
    total = tl.sum(acc, 0)
    for i in tl.range(0, cols, BLOCK, num_stages=STAGES):
        c = i + tl.arange(0, BLOCK)
        p = tl.load(p_ptr + start + c, mask=c < cols, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + start + c, mask=c < cols, other=0.0).to(tl.float32)
        dx = p * (dy - total)
        tl.store(y_ptr + start + c, dx.to(y_ptr.dtype.element_ty), mask=c < cols)


DTYPES = ("fp32",)

SHAPES = (
    {"rows": 4096, "cols": 8192},
    {"rows": 132, "cols": 32768},
    {"rows": 40000, "cols": 500},
)


def space() -> Space:
    """Build the space: block, stages of the loops and warps."""
    axes = {
        "BLOCK": (128, 256, 512, 1024, 2048, 4096, 8192),
        "STAGES": (1, 2, 4),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 1, 32, "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random probabilities and gradients."""
    rows, cols = shape["rows"], shape["cols"]
    p, dy = (normal((rows, cols), dtype, device) for _ in range(2))
    arguments = {"p_ptr": p.softmax(1), "dy_ptr": dy, "y_ptr": torch.empty_like(p)}
    return launch(kernel, shape, arguments, rows)
