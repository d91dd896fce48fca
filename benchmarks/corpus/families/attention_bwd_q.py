"""Attention backward, the gradient of queries: three products in a loop over keys."""

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
    dy_ptr,
    lse_ptr,
    delta_ptr,
    y_ptr,
    N,
    scale,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Process BLOCK_M queries of one head a program; lse and scale for powers of 2."""
    m, d = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, D)
    base = tl.program_id(1).to(tl.int64) * N
    at = (base + m[:, None]) * D + d[None, :]
    q = tl.load(q_ptr + at, mask=m[:, None] < N, other=0.0)
    dy = tl.load(dy_ptr + at, mask=m[:, None] < N, other=0.0)
    lse = tl.load(lse_ptr + base + m, mask=m < N, other=0.0)
    delta = tl.load(delta_ptr + base + m, mask=m < N, other=0.0)
    dq = tl.zeros([BLOCK_M, D], tl.float32)
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        here = (base + n[:, None]) * D + d[None, :]
        k = tl.load(k_ptr + here, mask=n[:, None] < N, other=0.0)
        v = tl.load(v_ptr + here, mask=n[:, None] < N, other=0.0)
        p = tl.exp2(tl.dot(q, k.T) * scale - lse[:, None])
        p = tl.where(n[None, :] < N, p, 0.0)
        ds = p * (tl.dot(dy, v.T) - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    tl.store(y_ptr + at, dq.to(y_ptr.dtype.element_ty), mask=m[:, None] < N)


DTYPES = ("fp16",)

SHAPES = (
    {"B": 2, "H": 16, "N": 2048, "D": 64},
    {"B": 1, "H": 8, "N": 1024, "D": 128},
    {"B": 5, "H": 7, "N": 777, "D": 64},
)


def space() -> Space:
    """Build the space: queries, keys, stages and warps."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (16, 32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (1, 2, 3),
    }
    return Space(axes).where(
        "a thread holds 4 to 64 scores, and 64 results at most",
        lambda BLOCK_M, BLOCK_N, D, num_warps: (
            4 <= BLOCK_M * BLOCK_N // (num_warps * 32) <= 64
            and BLOCK_M * D // (num_warps * 32) <= 64
        ),
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random heads and gradients; the sums as a forward pass leaves them."""
    heads, N, D = shape["B"] * shape["H"], shape["N"], shape["D"]
    q, k, v, dy = (normal((heads, N, D), dtype, device) for _ in range(4))
    scale = D**-0.5 * 1.4426950408889634
    arguments = {
        "q_ptr": q,
        "k_ptr": k,
        "v_ptr": v,
        "dy_ptr": dy,
        "lse_ptr": torch.rand(heads, N, device=device) + 10.0,
        "delta_ptr": torch.randn(heads, N, device=device),
        "y_ptr": torch.empty_like(q),
        "scale": scale,
    }
    return launch(kernel, shape, arguments, (N, "BLOCK_M"), heads)
