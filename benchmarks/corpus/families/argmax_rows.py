"""The place of each row's largest element: values and places carried through a loop."""

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
    STAGES: tl.constexpr,
):
    """Compute ROWS rows a program, in blocks of BLOCK columns; the first of equals."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    top = tl.full([ROWS, BLOCK], float("-inf"), tl.float32)
    where = tl.zeros([ROWS, BLOCK], tl.int32)
    for i in tl.range(0, cols, BLOCK, num_stages=STAGES):
        c = i + tl.arange(0, BLOCK)
        inside = (r[:, None] < rows) & (c[None, :] < cols)
        at = r[:, None].to(tl.int64) * cols + c[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=float("-inf")).to(tl.float32)
        where = tl.where(x > top, c[None, :], where)
        top = tl.maximum(top, x)
    best = tl.max(top, 1)
    y = tl.min(tl.where(top == best[:, None], where, cols), 1)
    tl.store(y_ptr + r, y, mask=r < rows)


DTYPES = ("fp16",)

SHAPES = (
    {"rows": 2048, "cols": 32000},
    {"rows": 64, "cols": 50257},
    {"rows": 100000, "cols": 100},
)


def space() -> Space:
    """Build the space: rows, columns, stages and warps."""
    axes = {
        "ROWS": (1, 4, 16),
        "BLOCK": (64, 128, 256, 512, 1024, 2048),
        "num_warps": (1, 2, 4, 8, 16),
        "STAGES": (1, 3),
    }
    return held(axes, 1, 32, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random rows."""
    rows, cols = shape["rows"], shape["cols"]
    x = normal((rows, cols), dtype, device)
    y = torch.empty(rows, device=device, dtype=torch.int32)
    arguments = {"x_ptr": x, "y_ptr": y}
    return launch(kernel, shape, arguments, (rows, "ROWS"))
