"""Rotary embedding of neighbouring pairs: split, rotated, joined."""

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
    x_ptr,
    cos_ptr,
    sin_ptr,
    y_ptr,
    rows,
    heads,
    HALF: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Compute ROWS rows (a head of a token each) of 2 HALF elements a program."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c, h = tl.arange(0, 2 * HALF), tl.arange(0, HALF)
    at = r[:, None] * (2 * HALF) + c[None, :]
    angle = (r // heads)[:, None] * HALF + h[None, :]
    inside = r[:, None] < rows
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + angle, mask=inside, other=0.0)
    sin = tl.load(sin_ptr + angle, mask=inside, other=0.0)
    even, odd = tl.split(tl.reshape(x, [ROWS, HALF, 2]))
    y = tl.join(even * cos - odd * sin, odd * cos + even * sin)
    y = tl.reshape(y, [ROWS, 2 * HALF]).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + at, y, mask=inside)


DTYPES = ("bf16",)

SHAPES = (
    {"tokens": 8192, "heads": 32, "half": 64},
    {"tokens": 64, "heads": 8, "half": 64},
    {"tokens": 3001, "heads": 5, "half": 32},
)


def space() -> Space:
    """Build the space: rows, warps and a cap on registers."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16, 32, 64, 128),
        "num_warps": (1, 2, 4, 8, 16),
        "maxnreg": (None, 32, 64),
    }
    return Space(axes).where(
        "a thread holds 1 to 64 elements",
        lambda ROWS, half, num_warps: 1 <= ROWS * half * 2 // (num_warps * 32) <= 64,
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random heads and angles."""
    tokens, heads, half = shape["tokens"], shape["heads"], shape["half"]
    x = normal((tokens, heads, 2 * half), dtype, device)
    angle = torch.randn(tokens, half, device=device)
    arguments = {"x_ptr": x, "cos_ptr": angle.cos(), "sin_ptr": angle.sin()}
    arguments |= {"y_ptr": torch.empty_like(x), "rows": tokens * heads}
    return launch(kernel, shape, arguments | {"HALF": half}, ("rows", "ROWS"))
