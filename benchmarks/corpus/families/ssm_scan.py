"""A linear recurrence h = a h + b along time, by an associative scan of two values a block."""

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
def _chain(a_left, b_left, a_right, b_right):
    return a_left * a_right, b_left * a_right + b_right


@triton.jit
def kernel(a_ptr, b_ptr, y_ptr, rows, time, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Process ROWS sequences a program, BLOCK time steps at once, the state carried over."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    t = tl.arange(0, BLOCK)
    state = tl.zeros([ROWS], tl.float32)
    for i in range(0, time, BLOCK):
        inside = (r[:, None] < rows) & (i + t[None, :] < time)
        at = r[:, None].to(tl.int64) * time + i + t[None, :]
        a = tl.load(a_ptr + at, mask=inside, other=1.0)
        b = tl.load(b_ptr + at, mask=inside, other=0.0)
        decay, partial = tl.associative_scan((a, b), 1, _chain)
        h = decay * state[:, None] + partial
        tl.store(y_ptr + at, h, mask=inside)
        state = tl.sum(tl.where(t[None, :] == BLOCK - 1, h, 0.0), 1)


DTYPES = ("fp32",)

SHAPES = (
    {"rows": 8192, "time": 2048},
    {"rows": 48, "time": 16384},
    {"rows": 30000, "time": 333},
)


def space() -> Space:
    """Build the space: sequences, time steps at once, and warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16),
        "BLOCK": (32, 64, 128, 256, 512, 1024, 2048),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 1, 16, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random decays in (0, 1) and inputs."""
    rows, time = shape["rows"], shape["time"]
    b = torch.randn(rows, time, device=device, dtype=torch_dtype(dtype))
    arguments = {"a_ptr": torch.rand_like(b), "b_ptr": b, "y_ptr": torch.empty_like(b)}
    return launch(kernel, shape, arguments, (rows, "ROWS"))
