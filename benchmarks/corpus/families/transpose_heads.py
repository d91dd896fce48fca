"""(batch, time, heads, D) to (batch, heads, D, time): a transpose inside of every head."""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def kernel(
    x_ptr,
    y_ptr,
    time,
    heads,
    D,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BEFORE: tl.constexpr,
):
    """Transpose a tile of one head a program, if BEFORE before it is stored, else by its stores."""
    t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    batch, head = tl.program_id(2) // heads, tl.program_id(2) % heads
    inside = (t[:, None] < time) & (d[None, :] < D)
    x = x_ptr + ((batch * time + t[:, None]) * heads + head) * D + d[None, :]
    y = y_ptr + tl.program_id(2) * time * D
    tile = tl.load(x, mask=inside)
    if BEFORE:
        there = (d[:, None] < D) & (t[None, :] < time)
        tl.store(y + d[:, None] * time + t[None, :], tl.trans(tile), mask=there)
    else:
        tl.store(y + d[None, :] * time + t[:, None], tile, mask=inside)


DTYPES = ("bf16",)

SHAPES = (
    {"batch": 8, "time": 2048, "heads": 16, "D": 128},
    {"batch": 1, "time": 512, "heads": 8, "D": 64},
    {"batch": 3, "time": 1777, "heads": 7, "D": 100},
)


def space() -> Space:
    """Build the space: tile, where to transpose, and warps."""
    axes = {
        "BLOCK_T": (8, 16, 32, 64, 128),
        "BLOCK_D": (16, 32, 64, 128),
        "BEFORE": (False, True),
        "num_warps": (1, 2, 4, 8),
    }
    return held(axes, 1, 32, "BLOCK_T", "BLOCK_D")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random heads."""
    batch, time, heads, D = (shape[name] for name in ("batch", "time", "heads", "D"))
    x = normal((batch, time, heads, D), dtype, device)
    arguments = {"x_ptr": x, "y_ptr": x.new_empty(batch, heads, D, time)}
    return launch(kernel, shape, arguments, (time, "BLOCK_T"), (D, "BLOCK_D"), batch * heads)
