"""Softmax over the rows of each segment, column by column."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal, ragged


@triton.jit
def kernel(x_ptr, offset_ptr, out_ptr, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Process BLOCK columns of one segment a program, ROWS rows at a time, twice."""
    first = tl.load(offset_ptr + tl.program_id(0))
    last = tl.load(offset_ptr + tl.program_id(0) + 1)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    top = tl.full([BLOCK], -1.0e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for i in range(first, last, ROWS):
        r = i + tl.arange(0, ROWS)
        mask = (r[:, None] < last) & (c[None, :] < cols)
        at = r.to(tl.int64)[:, None] * cols + c[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=-1.0e30).to(tl.float32)
        high = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - high) + tl.sum(tl.exp(x - high[None, :]), 0)
        top = high
    for i in range(first, last, ROWS):
        r = i + tl.arange(0, ROWS)
        mask = (r[:, None] < last) & (c[None, :] < cols)
        at = r.to(tl.int64)[:, None] * cols + c[None, :]
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        y = tl.exp(x - top[None, :]) / total[None, :]
        tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=mask)


DTYPES = ("fp32",)

SHAPES = (
    {"segments": 2000, "mean": 64, "cols": 256},
    {"segments": 200, "mean": 900, "cols": 100},
)


def space() -> Space:
    """Build the space: rows, columns, warps and stages."""
    axes = {
        "ROWS": (1, 4, 16, 64),
        "BLOCK": (16, 32, 64, 128),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1, 3),
    }
    return held(axes, 1, 32, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on segments of all lengths, none among them."""
    segments, cols = shape["segments"], shape["cols"]
    offsets = ragged(segments, shape["mean"])
    x = normal((int(offsets[-1]), cols), dtype, device)
    arguments = {
        "x_ptr": x,
        "offset_ptr": offsets.to(device),
        "out_ptr": torch.empty_like(x),
    }
    return launch(kernel, shape, arguments, segments, (cols, "BLOCK"))
