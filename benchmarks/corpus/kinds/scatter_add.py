"""Rows added where an index says, by atomic additions."""

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
    out_ptr,
    rows,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute ROWS rows by BLOCK columns a program."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    x = tl.load(x_ptr + r.to(tl.int64)[:, None] * cols + c[None, :], mask=mask, other=0.0)
    to = tl.load(index_ptr + r, mask=r < rows, other=0).to(tl.int64)
    tl.atomic_add(out_ptr + to[:, None] * cols + c[None, :], x, mask=mask, sem="relaxed")


DTYPES = ("fp32",)

SHAPES = (
    {"rows": 60000, "cols": 256, "nodes": 10000},
    {"rows": 100000, "cols": 64, "nodes": 200},
)


def space() -> Space:
    """Build the space: rows, columns, warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16, 32),
        "BLOCK": (16, 32, 64, 128, 256),
        "num_warps": (1, 2, 4, 8),
    }
    return held(axes, 1, 32, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random indices, into zeros."""
    rows, cols = shape["rows"], shape["cols"]
    arguments = {
        "x_ptr": normal((rows, cols), dtype, device),
        "index_ptr": torch.randint(0, shape["nodes"], (rows,), device=device, dtype=torch.int32),
        "out_ptr": torch.zeros(shape["nodes"], cols, device=device),
    }
    return launch(kernel, shape, arguments, (rows, "ROWS"), (cols, "BLOCK"))
