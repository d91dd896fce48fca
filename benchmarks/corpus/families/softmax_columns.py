"""Softmax down the columns: running maxima in one loop, then a loop that writes."""

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
    M,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute BLOCK_N columns a program, BLOCK_M rows at a time."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    top = tl.full([BLOCK_M, BLOCK_N], -1.0e30, tl.float32)
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in tl.range(0, M, BLOCK_M, num_stages=STAGES):
        m = i + tl.arange(0, BLOCK_M)
        inside = (m[:, None] < M) & (n[None, :] < N)
        at = m[:, None] * N + n[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=-1.0e30).to(tl.float32)
        higher = tl.maximum(top, x)
        total = total * tl.exp(top - higher) + tl.where(inside, tl.exp(x - higher), 0.0)
        top = higher
    best = tl.max(top, 0)
    scale = 1.0 / tl.sum(total * tl.exp(top - best[None, :]), 0)
    for i in tl.range(0, M, BLOCK_M, num_stages=STAGES):
        m = i + tl.arange(0, BLOCK_M)
        inside = (m[:, None] < M) & (n[None, :] < N)
        at = m[:, None] * N + n[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        y = tl.exp(x - best[None, :]) * scale[None, :]
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


DTYPES = ("bf16",)

SHAPES = (
    {"M": 2048, "N": 16384},
    {"M": 4096, "N": 512},
    {"M": 333, "N": 30001},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (1, 4, 16, 64, 256),
        "BLOCK_N": (16, 32, 64, 128, 256),
        "num_warps": (1, 2, 4, 8, 16),
        "STAGES": (1, 3),
    }
    return held(axes, 1, 16, "BLOCK_M", "BLOCK_N")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on a random matrix."""
    M, N = shape["M"], shape["N"]
    x = normal((M, N), dtype, device)
    arguments = {"x_ptr": x, "y_ptr": torch.empty_like(x)}
    return launch(kernel, shape, arguments, (N, "BLOCK_N"))
