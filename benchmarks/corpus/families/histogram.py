"""Histograms of groups: counts of a block in shared memory, added to the group's by atomics."""

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
    y_ptr,
    length,
    BINS: tl.constexpr,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Process STEPS blocks of one group a program; add to y, which starts at 0."""
    group = tl.program_id(1).to(tl.int64)
    counts = tl.zeros([BINS], tl.int32)
    for step in range(STEPS):
        i = (tl.program_id(0) * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + group * length + i, mask=i < length, other=0)
        counts += tl.histogram(x, BINS, mask=i < length)
    tl.atomic_add(y_ptr + group * BINS + tl.arange(0, BINS), counts, sem="relaxed")


DTYPES = ("i32",)

SHAPES = (
    {"groups": 64, "length": 1 << 19, "bins": 256},
    {"groups": 4, "length": 40000, "bins": 64},
    {"groups": 1000, "length": 10001, "bins": 1024},
)


def space() -> Space:
    """Build the space: block, blocks a program and warps."""
    axes = {
        "BLOCK": (128, 256, 512, 1024, 2048, 4096, 8192),
        "STEPS": (1, 4, 16, 64),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 1, 32, "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random bins, a power of two of them, and counts at zero."""
    groups, length, bins = shape["groups"], shape["length"], shape["bins"]
    kind = torch_dtype(dtype)
    x = torch.randint(0, bins, (groups, length), device=device, dtype=kind)
    y = torch.zeros(groups, bins, device=device, dtype=torch.int32)
    return launch(
        kernel,
        shape,
        {"x_ptr": x, "y_ptr": y, "BINS": bins},
        (length, "BLOCK", "STEPS"),
        groups,
    )
