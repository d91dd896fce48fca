"""Low-rank updates by adapter: a short product of each block of tokens, added to the output."""

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
    w_ptr,
    adapter_ptr,
    y_ptr,
    tokens,
    N,
    scale,
    SIDE: tl.constexpr,
    R: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Process BLOCK_M tokens of one adapter by BLOCK_N columns a program; adapter -1 is none."""
    start = tl.program_id(0) * BLOCK_M
    adapter = tl.load(adapter_ptr + start // SIDE)
    if adapter < 0:
        return
    rows = start + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    r = tl.arange(0, R)
    x = tl.load(x_ptr + rows[:, None] * R + r[None, :], mask=rows[:, None] < tokens, other=0.0)
    b = w_ptr + adapter.to(tl.int64) * N * R + cols[None, :] * R + r[:, None]
    w = tl.load(b, mask=cols[None, :] < N, other=0.0)
    mask = (rows[:, None] < tokens) & (cols[None, :] < N)
    at = y_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :]
    y = tl.load(at, mask=mask, other=0.0).to(tl.float32) + tl.dot(x, w) * scale
    tl.store(at, y.to(y_ptr.dtype.element_ty), mask=mask)


DTYPES = ("bf16",)

SHAPES = (
    {"tokens": 8192, "adapters": 8, "N": 4096, "R": 16},
    {"tokens": 1000, "adapters": 20, "N": 11008, "R": 64},
)


SIDE = 64
"""Tokens that share an adapter."""


def space() -> Space:
    """Build the space: tile, warps and stages; tokens of a program have one adapter."""
    axes = {
        "BLOCK_M": (16, 32, 64),
        "BLOCK_N": (16, 32, 64, 128, 256),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1, 3),
    }
    return held(axes, 4, 64, "BLOCK_M", "BLOCK_N")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch in which one block of five has no adapter."""
    tokens, adapters, N, R = (shape[name] for name in ("tokens", "adapters", "N", "R"))
    of = torch.arange(triton.cdiv(tokens, SIDE), dtype=torch.int32) * 3 % adapters
    of[1::5] = -1
    arguments = {
        "x_ptr": normal((tokens, R), dtype, device),
        "w_ptr": normal((adapters, N, R), dtype, device),
        "adapter_ptr": of.to(device),
        "y_ptr": torch.zeros(tokens, N, device=device, dtype=torch.float16),
        "scale": 2.0,
        "SIDE": SIDE,
    }
    return launch(kernel, shape, arguments, (tokens, "BLOCK_M"), (N, "BLOCK_N"))
