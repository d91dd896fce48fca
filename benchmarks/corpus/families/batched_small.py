"""Thousands of small square products, several a program."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import launch, normal


@triton.jit
def kernel(
    a_ptr,
    b_ptr,
    y_ptr,
    batch,
    S,
    BLOCK: tl.constexpr,
    EACH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute EACH whole products a program."""
    i = tl.arange(0, BLOCK)
    at = i[:, None] * S + i[None, :]
    inside = (i[:, None] < S) & (i[None, :] < S)
    first = tl.program_id(0) * EACH
    for p in tl.range(first, min(first + EACH, batch), num_stages=STAGES):
        start = p * S * S
        a = tl.load(a_ptr + start + at, mask=inside, other=0.0)
        b = tl.load(b_ptr + start + at, mask=inside, other=0.0)
        y = tl.dot(a, b)
        tl.store(y_ptr + start + at, y.to(y_ptr.dtype.element_ty), mask=inside)


DTYPES = ("fp16",)

SHAPES = (
    {"batch": 16384, "S": 64},
    {"batch": 200, "S": 32},
    {"batch": 3001, "S": 100},
    {"batch": 50000, "S": 24},
)


def space() -> Space:
    """Build the space: products a program, block, stages of the loop and warps."""
    axes = {
        "BLOCK": (32, 64, 128),
        "EACH": (1, 2, 4, 8, 16),
        "STAGES": (1, 2, 3, 4),
        "num_warps": (1, 2, 4, 8),
    }
    return (
        Space(axes)
        .where("a block holds a matrix", lambda BLOCK, S: S <= BLOCK < 4 * S)
        .where("one stage where there is no loop", lambda EACH, STAGES: EACH > 1 or STAGES == 1)
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices."""
    batch, S = shape["batch"], shape["S"]
    a, b = (normal((batch, S, S), dtype, device) for _ in range(2))
    arguments = {"a_ptr": a, "b_ptr": b, "y_ptr": torch.empty_like(a)}
    return launch(kernel, shape, arguments, (batch, "EACH"))
