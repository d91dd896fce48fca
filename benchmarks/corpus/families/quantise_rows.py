"""int8 by rows: the largest magnitude in one loop, then a loop that scales and rounds."""

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
    scale_ptr,
    y_ptr,
    cols,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute one row a program, in blocks of BLOCK."""
    row = tl.program_id(0)
    start = row.to(tl.int64) * cols
    largest = tl.zeros([BLOCK], tl.float32)
    for i in tl.range(0, cols, BLOCK, num_stages=STAGES):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + c, mask=c < cols, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(x))
    scale = tl.maximum(tl.max(largest, 0), 1e-8) / 127.0
    tl.store(scale_ptr + row, scale)
    for i in tl.range(0, cols, BLOCK, num_stages=STAGES):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + c, mask=c < cols, other=0.0).to(tl.float32)
        y = tl.floor(x / scale + 0.5)
        tl.store(y_ptr + start + c, y.to(tl.int8), mask=c < cols)


DTYPES = ("fp16",)

SHAPES = (
    {"rows": 8192, "cols": 8192},
    {"rows": 128, "cols": 4096},
    {"rows": 50000, "cols": 511},
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
    """Make a launch on random rows."""
    rows, cols = shape["rows"], shape["cols"]
    x = normal((rows, cols), dtype, device)
    arguments = {
        "x_ptr": x,
        "scale_ptr": torch.empty(rows, device=device),
        "y_ptr": torch.empty(rows, cols, device=device, dtype=torch.int8),
    }
    return launch(kernel, shape, arguments, rows)
