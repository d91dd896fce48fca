"""Gather of an element of its row for every place, by int32 indices: no two share a line."""

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
    index_ptr,
    y_ptr,
    rows,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute a tile of places a program."""
    r = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    at = r[:, None] * cols + c[None, :]
    index = tl.load(index_ptr + at, mask=inside, other=0)
    x = tl.load(x_ptr + r[:, None] * cols + index, mask=inside)
    tl.store(y_ptr + at, x, mask=inside)


DTYPES = ("fp32",)

SHAPES = (
    {"rows": 1024, "cols": 16384},
    {"rows": 128, "cols": 1024},
    {"rows": 33, "cols": 300001},
)


def space() -> Space:
    """Build the space: tile and warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16),
        "BLOCK": (32, 64, 128, 256, 512, 1024),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 1, 16, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random rows and places."""
    rows, cols = shape["rows"], shape["cols"]
    x = normal((rows, cols), dtype, device)
    arguments = {
        "x_ptr": x,
        "index_ptr": torch.randint(0, cols, (rows, cols), device=device, dtype=torch.int32),
        "y_ptr": torch.empty_like(x),
    }
    return launch(kernel, shape, arguments, (cols, "BLOCK"), (rows, "ROWS"))
