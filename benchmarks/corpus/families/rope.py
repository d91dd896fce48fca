"""Rotary embedding: halves of each head rotated by the token's angles; 3-D tiles."""

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
    tokens,
    heads,
    HALF: tl.constexpr,
    TOKENS: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Process TOKENS x HEADS heads a program."""
    t = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    h = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    d = tl.arange(0, HALF)
    angle = t[:, None] * HALF + d[None, :]
    cos = tl.load(cos_ptr + angle, mask=t[:, None] < tokens, other=0.0)[:, None, :]
    sin = tl.load(sin_ptr + angle, mask=t[:, None] < tokens, other=0.0)[:, None, :]
    at = (t[:, None, None].to(tl.int64) * heads + h[None, :, None]) * (2 * HALF) + d[None, None, :]
    inside = (t[:, None, None] < tokens) & (h[None, :, None] < heads)
    low = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(x_ptr + at + HALF, mask=inside, other=0.0).to(tl.float32)
    kind = y_ptr.dtype.element_ty
    tl.store(y_ptr + at, (low * cos - high * sin).to(kind), mask=inside)
    tl.store(y_ptr + at + HALF, (high * cos + low * sin).to(kind), mask=inside)


DTYPES = ("bf16",)

SHAPES = (
    {"tokens": 16384, "heads": 32, "head": 128},
    {"tokens": 48, "heads": 64, "head": 128},
    {"tokens": 8192, "heads": 12, "head": 64},
    {"tokens": 4001, "heads": 7, "head": 256},
)


def space() -> Space:
    """Build the space: tokens and heads a program, and warps."""
    axes = {
        "TOKENS": (1, 2, 4, 8, 16),
        "HEADS": (1, 2, 4, 8, 16, 32),
        "num_warps": (1, 2, 4, 8, 16, 32),
    }
    return Space(axes).where(
        "a thread holds 1 to 32 pairs",
        lambda TOKENS, HEADS, head, num_warps: 1 <= TOKENS * HEADS * head // (num_warps * 64) <= 32,
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random heads and angles; a head's size must be a power of two."""
    tokens, heads, head = shape["tokens"], shape["heads"], shape["head"]
    x = normal((tokens, heads, head), dtype, device)
    angle = torch.randn(tokens, head // 2, device=device)
    arguments = {"x_ptr": x, "cos_ptr": angle.cos(), "sin_ptr": angle.sin()}
    arguments |= {"y_ptr": torch.empty_like(x)}
    return launch(
        kernel, shape, {**arguments, "HALF": head // 2}, (tokens, "TOKENS"), (heads, "HEADS")
    )
