"""LayerNorm backward, the gradient of x: two row sums in one loop, then a loop that writes."""

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
    dy_ptr,
    x_ptr,
    w_ptr,
    mean_ptr,
    rstd_ptr,
    y_ptr,
    cols,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute one row a program, in blocks of BLOCK."""
    row = tl.program_id(0)
    start = row.to(tl.int64) * cols
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    both = tl.zeros([BLOCK], tl.float32)
    alone = tl.zeros([BLOCK], tl.float32)
    for i in tl.range(0, cols, BLOCK, num_stages=STAGES):
        c = i + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + start + c, mask=c < cols, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + start + c, mask=c < cols, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + c, mask=c < cols, other=0.0).to(tl.float32)
        both += dy * w * (x - mean) * rstd
        alone += dy * w
    mean_both = tl.sum(both, 0) / cols
    mean_alone = tl.sum(alone, 0) / cols
    for i in tl.range(0, cols, BLOCK, num_stages=STAGES):
        c = i + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + start + c, mask=c < cols, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + start + c, mask=c < cols, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + c, mask=c < cols, other=0.0).to(tl.float32)
        dx = (dy * w - (x - mean) * rstd * mean_both - mean_alone) * rstd
        tl.store(y_ptr + start + c, dx.to(y_ptr.dtype.element_ty), mask=c < cols)


DTYPES = ("fp16",)

SHAPES = (
    {"rows": 8192, "cols": 4096},
    {"rows": 100, "cols": 16384},
    {"rows": 20000, "cols": 768},
    {"rows": 3001, "cols": 2047},
)


def space() -> Space:
    """Build the space: block, stages of the loops, warps and a cap on registers."""
    axes = {
        "BLOCK": (256, 512, 1024, 2048, 4096, 8192),
        "STAGES": (1, 2, 3, 4),
        "num_warps": (1, 2, 4, 8, 16),
        "maxnreg": (None, 64),
    }
    return held(axes, 1, 32, "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random rows with their own moments."""
    rows, cols = shape["rows"], shape["cols"]
    x, dy = (normal((rows, cols), dtype, device) for _ in range(2))
    arguments = {
        "dy_ptr": dy,
        "x_ptr": x,
        "w_ptr": normal((cols,), dtype, device),
        "mean_ptr": x.float().mean(1),
        "rstd_ptr": torch.rsqrt(x.float().var(1, correction=0) + 1e-5),
        "y_ptr": torch.empty_like(x),
    }
    return launch(kernel, shape, arguments, rows)
