"""Mean and variance of rows by Welford's update, merged by a reduction with three values."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def _merge(mean_a, square_a, count_a, mean_b, square_b, count_b):
    count = count_a + count_b
    share = tl.where(count == 0.0, 0.0, count_b / count)
    delta = mean_b - mean_a
    return mean_a + delta * share, square_a + square_b + delta * delta * count_a * share, count


@triton.jit
def kernel(x_ptr, y_ptr, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute ROWS rows a program; y has their means, then their variances."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    mean = tl.zeros([ROWS, BLOCK], tl.float32)
    square = tl.zeros([ROWS, BLOCK], tl.float32)
    count = tl.zeros([ROWS, BLOCK], tl.float32)
    for i in range(0, cols, BLOCK):
        c = i + tl.arange(0, BLOCK)
        inside = (r[:, None] < rows) & (c[None, :] < cols)
        x = tl.load(x_ptr + r[:, None].to(tl.int64) * cols + c[None, :], mask=inside, other=0.0)
        delta = x.to(tl.float32) - mean
        count += inside.to(tl.float32)
        mean += tl.where(inside, delta / count, 0.0)
        square += tl.where(inside, delta * (x.to(tl.float32) - mean), 0.0)
    mean, square, count = tl.reduce((mean, square, count), 1, _merge)
    tl.store(y_ptr + r, mean, mask=r < rows)
    tl.store(y_ptr + rows + r, square / count, mask=r < rows)


DTYPES = ("bf16",)

SHAPES = (
    {"rows": 8192, "cols": 8192},
    {"rows": 64, "cols": 20000},
    {"rows": 50000, "cols": 512},
    {"rows": 3001, "cols": 1999},
)


def space() -> Space:
    """Build the space: rows, block and warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16),
        "BLOCK": (64, 128, 256, 512, 1024, 2048, 4096),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 1, 32, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random rows."""
    rows, cols = shape["rows"], shape["cols"]
    x = normal((rows, cols), dtype, device)
    y = torch.empty(2, rows, device=device)
    arguments = {"x_ptr": x, "y_ptr": y}
    return launch(kernel, shape, arguments, (rows, "ROWS"))
