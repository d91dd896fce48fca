"""The sum of squares of a vector into one number: few programs, one atomic addition each."""

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
    total,
    BLOCK: tl.constexpr,
    PROGRAMS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Process every PROGRAMS-th block; add to y, which starts at 0."""
    acc = tl.zeros([BLOCK], tl.float32)
    for i in tl.range(tl.program_id(0) * BLOCK, total, PROGRAMS * BLOCK, num_stages=STAGES):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + c, mask=c < total, other=0.0).to(tl.float32)
        acc += x * x
    tl.atomic_add(y_ptr, tl.sum(acc, 0), sem="relaxed")


DTYPES = ("bf16",)

SHAPES = (
    {"total": 134217728},
    {"total": 1048576},
    {"total": 20000003},
)


def space() -> Space:
    """Build the space: block, programs, stages of the loop and warps."""
    axes = {
        "BLOCK": (512, 1024, 2048, 4096),
        "PROGRAMS": (132, 264, 1056),
        "STAGES": (1, 4),
        "num_warps": (1, 4, 8, 16),
    }
    return held(axes, 1, 64, "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on a random vector, and a sum at zero."""
    total = shape["total"]
    x = normal((total,), dtype, device)
    arguments = {"x_ptr": x, "y_ptr": torch.zeros(1, device=device)}
    return launch(kernel, shape, arguments, "PROGRAMS")
