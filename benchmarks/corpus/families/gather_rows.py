"""Embedding lookup: rows of a table by int64 indices, in tiles of rows and columns."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch


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
    """Process ROWS lookups a program, BLOCK columns of each."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + r, mask=r < rows, other=0)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    x = tl.load(x_ptr + index[:, None] * cols + c[None, :], mask=inside)
    tl.store(y_ptr + r[:, None].to(tl.int64) * cols + c[None, :], x, mask=inside)


DTYPES = ("fp16",)

SHAPES = (
    {"rows": 65536, "cols": 1024, "vocabulary": 50000},
    {"rows": 64, "cols": 4096, "vocabulary": 32000},
    {"rows": 1000000, "cols": 64, "vocabulary": 1000000},
    {"rows": 30001, "cols": 301, "vocabulary": 100000},
)


def space() -> Space:
    """Build the space: rows, columns and warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16, 32, 64),
        "BLOCK": (64, 128, 256, 512, 1024),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 1, 64, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on a random table and random indices."""
    rows, cols, vocabulary = shape["rows"], shape["cols"], shape["vocabulary"]
    x = torch.randn(vocabulary, cols, device=device, dtype=torch_dtype(dtype))
    arguments = {
        "x_ptr": x,
        "index_ptr": torch.randint(0, vocabulary, (rows,), device=device),
        "y_ptr": x.new_empty(rows, cols),
    }
    return launch(kernel, shape, arguments, (rows, "ROWS"), (cols, "BLOCK"))
