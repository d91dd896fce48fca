"""Means over the first steps of each sequence, as many as its length."""

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
    length_ptr,
    out_ptr,
    time,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Process BLOCK columns of one sequence a program, ROWS steps at a time."""
    sequence = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    length = tl.load(length_ptr + sequence)
    acc = tl.zeros([ROWS, BLOCK], tl.float32)
    for i in range(0, length, ROWS):
        t = i + tl.arange(0, ROWS)
        mask = (t[:, None] < length) & (c[None, :] < cols)
        at = x_ptr + (sequence * time + t[:, None]) * cols + c[None, :]
        acc += tl.load(at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(acc, 0) / tl.maximum(length, 1)
    tl.store(out_ptr + sequence * cols + c, mean.to(out_ptr.dtype.element_ty), mask=c < cols)


DTYPES = ("bf16",)

SHAPES = (
    {"batch": 256, "time": 512, "cols": 1024},
    {"batch": 40, "time": 3000, "cols": 700},
)


def space() -> Space:
    """Build the space: steps, columns, warps and stages."""
    axes = {
        "ROWS": (1, 4, 16, 64),
        "BLOCK": (32, 64, 128, 256, 512),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1, 3),
    }
    return held(axes, 1, 32, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on lengths from none to all."""
    batch, time, cols = shape["batch"], shape["time"], shape["cols"]
    lengths = torch.tensor([i * 41 % (time + 1) for i in range(batch)], dtype=torch.int32)
    arguments = {
        "x_ptr": normal((batch, time, cols), dtype, device),
        "length_ptr": lengths.to(device),
        "out_ptr": normal((batch, cols), dtype, device),
    }
    return launch(kernel, shape, arguments, batch, (cols, "BLOCK"))
