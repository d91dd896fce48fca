"""Dropout with a mask from Philox: integer work bound, one or four numbers a counter."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import launch


@triton.jit
def kernel(
    x_ptr,
    y_ptr,
    total,
    count,
    drop,
    seed,
    FOUR: tl.constexpr,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Process STEPS blocks of counters a program; with FOUR, each serves one of each quarter."""
    scale = 1.0 / (1.0 - drop)
    for step in range(STEPS):
        counter = (tl.program_id(0) * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        if FOUR:
            u0, u1, u2, u3 = tl.rand4x(seed, counter)
            for k in tl.static_range(4):
                u = u0 if k == 0 else (u1 if k == 1 else (u2 if k == 2 else u3))
                at = k * count + counter
                inside = (counter < count) & (at < total)
                x = tl.load(x_ptr + at, mask=inside)
                tl.store(y_ptr + at, tl.where(u > drop, x * scale, 0.0), mask=inside)
        else:
            x = tl.load(x_ptr + counter, mask=counter < count)
            u = tl.rand(seed, counter)
            tl.store(y_ptr + counter, tl.where(u > drop, x * scale, 0.0), mask=counter < count)


DTYPES = ("fp32",)

SHAPES = (
    {"total": 1 << 26, "four": 0},
    {"total": 1 << 26, "four": 1},
    {"total": 100000, "four": 0},
    {"total": 10000019, "four": 1},
)


def space() -> Space:
    """Build the space: block, blocks a program, warps and a cap on registers."""
    axes = {
        "BLOCK": (64, 128, 256, 512, 1024, 2048, 4096, 8192),
        "STEPS": (1, 4),
        "num_warps": (1, 2, 4, 8, 16),
        "maxnreg": (None, 32, 64),
    }
    return Space(axes).where(
        "a thread has 1 to 16 counters, with a cap 2 or more",
        lambda BLOCK, num_warps, maxnreg: (
            (1 if maxnreg is None else 2) <= BLOCK // (num_warps * 32) <= 16
        ),
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random elements; 3 in 10 are dropped, by 1 or 4 numbers a counter."""
    total, four = shape["total"], shape["four"]
    x = torch.randn(total, device=device, dtype=torch_dtype(dtype))
    arguments = {"x_ptr": x, "y_ptr": torch.empty_like(x), "FOUR": four}
    arguments |= {"count": triton.cdiv(total, 4) if four else total, "drop": 0.3, "seed": 1234}
    return launch(kernel, shape, arguments, ("count", "BLOCK", "STEPS"))
