"""Embedding backward: gradients added atomically to the rows of a table."""

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
    index_ptr,
    y_ptr,
    rows,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Process ROWS lookups a program, BLOCK columns of each; add to y, which starts at 0."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + r, mask=r < rows, other=0)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    dy = tl.load(dy_ptr + r[:, None] * cols + c[None, :], mask=inside, other=0.0)
    y = y_ptr + index[:, None] * cols + c[None, :]
    tl.atomic_add(y, dy.to(tl.float32), mask=inside, sem="relaxed")


DTYPES = ("bf16",)

SHAPES = (
    {"rows": 16384, "cols": 1024, "vocabulary": 32000},
    {"rows": 512, "cols": 768, "vocabulary": 100},
    {"rows": 100001, "cols": 65, "vocabulary": 5000},
)


def space() -> Space:
    """Build the space: rows, columns and warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16, 32),
        "BLOCK": (32, 64, 128, 256, 512, 1024),
        "num_warps": (1, 2, 4, 8),
    }
    return held(axes, 1, 32, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random gradients and indices, and a table at zero."""
    rows, cols, vocabulary = shape["rows"], shape["cols"], shape["vocabulary"]
    arguments = {
        "dy_ptr": normal((rows, cols), dtype, device),
        "index_ptr": torch.randint(0, vocabulary, (rows,), device=device),
        "y_ptr": torch.zeros(vocabulary, cols, device=device),
    }
    return launch(kernel, shape, arguments, (rows, "ROWS"), (cols, "BLOCK"))
