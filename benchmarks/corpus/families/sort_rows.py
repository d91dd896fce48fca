"""Short rows sorted in registers and shared memory."""

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
    y_ptr,
    rows,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sort ROWS whole rows a program, ascending."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    at = r[:, None] * cols + c[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=float("inf"))
    tl.store(y_ptr + at, tl.sort(x, 1), mask=inside)


DTYPES = ("fp32",)

SHAPES = (
    {"rows": 65536, "cols": 64},
    {"rows": 1000, "cols": 128},
    {"rows": 30001, "cols": 100},
)


def space() -> Space:
    """Build the space: rows, block, warps and a cap on registers."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16, 32),
        "BLOCK": (64, 128, 256),
        "num_warps": (1, 2, 4, 8),
        "maxnreg": (None, 64),
    }
    return held(axes, 1, 16, "ROWS", "BLOCK").where(
        "a block holds a row", lambda BLOCK, cols: cols <= BLOCK < 4 * cols
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random rows."""
    rows, cols = shape["rows"], shape["cols"]
    x = normal((rows, cols), dtype, device)
    arguments = {"x_ptr": x, "y_ptr": torch.empty_like(x)}
    return launch(kernel, shape, arguments, (rows, "ROWS"))
