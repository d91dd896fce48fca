"""Sparse matrix (CSR) by a dense one: rows gathered by index, as many as the offsets say."""

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
    offset_ptr,
    index_ptr,
    value_ptr,
    x_ptr,
    y_ptr,
    cols,
    EDGES: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Process BLOCK columns of one row a program, EDGES entries at a time."""
    row = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(offset_ptr + row)
    last = tl.load(offset_ptr + row + 1)
    acc = tl.zeros([EDGES, BLOCK], tl.float32)
    for i in tl.range(first, last, EDGES, num_stages=STAGES):
        e = i + tl.arange(0, EDGES)
        index = tl.load(index_ptr + e, mask=e < last, other=0)
        value = tl.load(value_ptr + e, mask=e < last, other=0.0)
        inside = (e[:, None] < last) & (c[None, :] < cols)
        x = tl.load(x_ptr + index[:, None] * cols + c[None, :], mask=inside, other=0.0)
        acc += value[:, None] * x
    y = tl.sum(acc, 0)
    tl.store(y_ptr + row * cols + c, y.to(y_ptr.dtype.element_ty), mask=c < cols)


DTYPES = ("fp32",)

SHAPES = (
    {"rows": 20000, "cols": 256, "mean": 32},
    {"rows": 1000, "cols": 64, "mean": 100},
    {"rows": 50001, "cols": 100, "mean": 9},
)


def space() -> Space:
    """Build the space: entries, columns, stages and warps."""
    axes = {
        "EDGES": (1, 4, 8, 32),
        "BLOCK": (32, 64, 128, 256),
        "num_warps": (1, 2, 4, 8),
        "STAGES": (1, 3),
    }
    return held(axes, 1, 32, "EDGES", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random entries; rows have 0 to twice the mean, in a repeated pattern."""
    rows, cols, mean = shape["rows"], shape["cols"], shape["mean"]
    counts = [row * 7 % (2 * mean + 1) for row in range(rows)]
    ends = torch.tensor([0, *counts], dtype=torch.int32).cumsum(0).to(torch.int32)
    entries = sum(counts)
    x = normal((rows, cols), dtype, device)
    arguments = {
        "offset_ptr": ends.to(device),
        "index_ptr": torch.randint(0, rows, (entries,), device=device, dtype=torch.int32),
        "value_ptr": normal((entries,), dtype, device),
        "x_ptr": x,
        "y_ptr": torch.empty_like(x),
    }
    return launch(kernel, shape, arguments, rows, (cols, "BLOCK"))
