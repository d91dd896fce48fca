"""Count of each expert's tokens: made in registers, added atomically."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import launch, normal


@triton.jit
def kernel(
    expert_ptr, count_ptr, total, EXPERTS: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr
):
    """Process STEPS blocks of BLOCK choices a program."""
    every = tl.arange(0, EXPERTS)
    count = tl.zeros([EXPERTS], tl.int32)
    for i in range(STEPS):
        at = (tl.program_id(0) * STEPS + i) * BLOCK + tl.arange(0, BLOCK)
        expert = tl.load(expert_ptr + at, mask=at < total, other=-1)
        count += tl.sum((expert[:, None] == every[None, :]).to(tl.int32), 0)
    tl.atomic_add(count_ptr + every, count, mask=count > 0)


DTYPES = ("i32",)

SHAPES = ({"total": 262144, "EXPERTS": 64}, {"total": 1000000, "EXPERTS": 16})


def space() -> Space:
    """Build the space: choices, steps, warps and stages."""
    return Space(
        {
            "BLOCK": (16, 32, 64, 128, 256),
            "STEPS": (1, 4, 16, 64),
            "num_warps": (1, 2, 4, 8),
            "num_stages": (1, 3),
        }
    ).where(
        "a warp has choices for all lanes",
        lambda BLOCK, num_warps: num_warps * 8 <= BLOCK,
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on choices of which low experts have more."""
    total, EXPERTS = shape["total"], shape["EXPERTS"]
    drawn = (normal((total,), "fp32", device).abs() * EXPERTS / 3).clamp(max=EXPERTS - 1)
    arguments = {
        "expert_ptr": drawn.to(torch_dtype(dtype)),
        "count_ptr": torch.zeros(EXPERTS, device=device, dtype=torch.int32),
    }
    return launch(kernel, shape, arguments, (total, "BLOCK", "STEPS"))
