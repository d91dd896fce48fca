"""LayerNorm backward, the gradients of weight and bias: column sums by parts, added atomically."""

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
    mean_ptr,
    rstd_ptr,
    y_ptr,
    rows,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Process BLOCK columns of every PARTS-th block of rows a program; add to y, 0 before."""
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dw = tl.zeros([ROWS, BLOCK], tl.float32)
    db = tl.zeros([ROWS, BLOCK], tl.float32)
    for i in range(tl.program_id(1) * ROWS, rows, PARTS * ROWS):
        r = i + tl.arange(0, ROWS)
        inside = (r[:, None] < rows) & (c[None, :] < cols)
        at = r[:, None] * cols + c[None, :]
        dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + r, mask=r < rows, other=0.0)
        rstd = tl.load(rstd_ptr + r, mask=r < rows, other=0.0)
        dw += dy * (x - mean[:, None]) * rstd[:, None]
        db += dy
    tl.atomic_add(y_ptr + c, tl.sum(dw, 0), mask=c < cols, sem="relaxed")
    tl.atomic_add(y_ptr + cols + c, tl.sum(db, 0), mask=c < cols, sem="relaxed")


DTYPES = ("bf16",)

SHAPES = (
    {"rows": 8192, "cols": 4096},
    {"rows": 512, "cols": 1024},
    {"rows": 30001, "cols": 767},
)


def space() -> Space:
    """Build the space: rows and columns of a block, parts and warps."""
    axes = {
        "ROWS": (1, 4, 16, 64),
        "BLOCK": (32, 64, 128, 256),
        "PARTS": (4, 16, 64),
        "num_warps": (1, 4, 8),
    }
    return held(axes, 1, 32, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random rows with their own moments, and a result at zero."""
    rows, cols = shape["rows"], shape["cols"]
    x, dy = (normal((rows, cols), dtype, device) for _ in range(2))
    arguments = {
        "dy_ptr": dy,
        "x_ptr": x,
        "mean_ptr": x.float().mean(1),
        "rstd_ptr": torch.rsqrt(x.float().var(1, correction=0) + 1e-5),
        "y_ptr": torch.zeros(2, cols, device=device),
    }
    return launch(kernel, shape, arguments, (cols, "BLOCK"), "PARTS")
