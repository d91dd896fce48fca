"""Packed sequences to a padded batch."""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal, ragged


@triton.jit
def kernel(
    x_ptr,
    offset_ptr,
    out_ptr,
    length,
    cols,
    padding,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Process ROWS places of a sequence by BLOCK columns a program."""
    sequence = tl.program_id(2)
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(offset_ptr + sequence)
    last = tl.load(offset_ptr + sequence + 1)
    from_row = (first + r).to(tl.int64)
    there = (from_row < last)[:, None] & (c[None, :] < cols)
    x = tl.load(x_ptr + from_row[:, None] * cols + c[None, :], mask=there, other=padding)
    at = out_ptr + (sequence.to(tl.int64) * length + r[:, None]) * cols + c[None, :]
    tl.store(at, x, mask=(r[:, None] < length) & (c[None, :] < cols))


DTYPES = ("bf16",)

SHAPES = (
    {"batch": 64, "mean": 500, "cols": 1024},
    {"batch": 300, "mean": 60, "cols": 768},
)


def space() -> Space:
    """Build the space: rows, columns, warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16, 32),
        "BLOCK": (32, 64, 128, 256, 512, 1024),
        "num_warps": (1, 2, 4, 8),
    }
    return held(axes, 1, 64, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch; the batch is as long as its longest sequence."""
    batch, cols = shape["batch"], shape["cols"]
    offsets = ragged(batch, shape["mean"])
    length = int(offsets.diff().max())
    arguments = {
        "x_ptr": normal((int(offsets[-1]), cols), dtype, device),
        "offset_ptr": offsets.to(device),
        "out_ptr": normal((batch, length, cols), dtype, device),
        "length": length,
        "padding": -1.5,
    }
    return launch(kernel, shape, arguments, (length, "ROWS"), (cols, "BLOCK"), batch)
