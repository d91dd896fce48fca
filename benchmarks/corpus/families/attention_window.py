"""Attention over a sliding window: a loop over the keys near a block of queries."""

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
    q_ptr,
    k_ptr,
    v_ptr,
    y_ptr,
    N,
    window,
    scale,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Process BLOCK_M queries of one head a program; each sees itself and the window - 1 before."""
    first = tl.program_id(0) * BLOCK_M
    base = tl.program_id(1).to(tl.int64) * N
    m, d = first + tl.arange(0, BLOCK_M), tl.arange(0, D)
    at = (base + m[:, None]) * D + d[None, :]
    q = tl.load(q_ptr + at, mask=m[:, None] < N, other=0.0)
    top = tl.full([BLOCK_M], -1.0e30, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    low = tl.maximum(first - window + 1, 0) // BLOCK_N * BLOCK_N
    for start in range(low, tl.minimum(first + BLOCK_M, N), BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        here = (base + n[:, None]) * D + d[None, :]
        k = tl.load(k_ptr + here, mask=n[:, None] < N, other=0.0)
        behind = m[:, None] - n[None, :]
        s = tl.where((behind >= 0) & (behind < window), tl.dot(q, k.T) * scale, -1.0e30)
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + here, mask=n[:, None] < N, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        top = higher
    y = (acc / total[:, None]).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + at, y, mask=m[:, None] < N)


DTYPES = ("bf16",)

SHAPES = (
    {"B": 1, "H": 16, "N": 8192, "D": 128, "window": 1024},
    {"B": 2, "H": 4, "N": 1024, "D": 64, "window": 256},
    {"B": 3, "H": 5, "N": 3001, "D": 64, "window": 500},
)


def space() -> Space:
    """Build the space: queries, keys, stages and warps."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (16, 32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (1, 2, 3, 4),
    }
    return Space(axes).where(
        "a thread holds 4 to 64 scores, and 128 results at most",
        lambda BLOCK_M, BLOCK_N, D, num_warps: (
            4 <= BLOCK_M * BLOCK_N // (num_warps * 32) <= 64
            and BLOCK_M * D // (num_warps * 32) <= 128
        ),
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random heads."""
    heads, N, D = shape["B"] * shape["H"], shape["N"], shape["D"]
    q, k, v = (normal((heads, N, D), dtype, device) for _ in range(3))
    arguments = {"q_ptr": q, "k_ptr": k, "v_ptr": v, "y_ptr": torch.empty_like(q)}
    arguments |= {"scale": D**-0.5 * 1.4426950408889634}
    return launch(kernel, shape, arguments, (N, "BLOCK_M"), heads)
