"""Causal attention backward, the gradients of keys and values: loops of unequal length."""

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
    heads,
    scale,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Process BLOCK_N keys of one head a program, all queries from these on; y: dK, then dV."""
    first = tl.program_id(0) * BLOCK_N
    n, d = first + tl.arange(0, BLOCK_N), tl.arange(0, D)
    base = tl.program_id(1).to(tl.int64) * N
    at = (base + n[:, None]) * D + d[None, :]
    k = tl.load(k_ptr + at, mask=n[:, None] < N, other=0.0)
    v = tl.load(v_ptr + at, mask=n[:, None] < N, other=0.0)
    dk = tl.zeros([BLOCK_N, D], tl.float32)
    dv = tl.zeros([BLOCK_N, D], tl.float32)
    for low in range(first // BLOCK_M * BLOCK_M, N, BLOCK_M):
        m = low + tl.arange(0, BLOCK_M)
        here = (base + m[:, None]) * D + d[None, :]
        q = tl.load(q_ptr + here, mask=m[:, None] < N, other=0.0)
        dy = tl.load(dy_ptr + here, mask=m[:, None] < N, other=0.0)
        lse = tl.load(lse_ptr + base + m, mask=m < N, other=0.0)
        delta = tl.load(delta_ptr + base + m, mask=m < N, other=0.0)
        p = tl.exp2(tl.dot(k, q.T) * scale - lse[None, :])
        p = tl.where((n[:, None] <= m[None, :]) & (m[None, :] < N), p, 0.0)
        dv = tl.dot(p.to(dy.dtype), dy, dv)
        ds = p * (tl.dot(v, dy.T) - delta[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk)
    tl.store(y_ptr + at, dk.to(y_ptr.dtype.element_ty), mask=n[:, None] < N)
    other = y_ptr + heads.to(tl.int64) * N * D + at
    tl.store(other, dv.to(y_ptr.dtype.element_ty), mask=n[:, None] < N)


DTYPES = ("bf16",)

SHAPES = (
    {"B": 2, "H": 16, "N": 2048, "D": 64},
    {"B": 1, "H": 4, "N": 1024, "D": 128},
    {"B": 3, "H": 7, "N": 999, "D": 64},
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
        "a thread holds 4 to 64 scores, and 64 of each result at most",
        lambda BLOCK_M, BLOCK_N, D, num_warps: (
            4 <= BLOCK_M * BLOCK_N // (num_warps * 32) <= 64
            and BLOCK_N * D // (num_warps * 32) <= 64
        ),
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random heads and gradients; the sums as a forward pass leaves them."""
    heads, N, D = shape["B"] * shape["H"], shape["N"], shape["D"]
    q, k, v, dy = (normal((heads, N, D), dtype, device) for _ in range(4))
    arguments = {
        "q_ptr": q,
        "k_ptr": k,
        "v_ptr": v,
        "dy_ptr": dy,
        "lse_ptr": torch.rand(heads, N, device=device) + 10.0,
        "delta_ptr": torch.randn(heads, N, device=device),
        "y_ptr": q.new_empty(2, heads, N, D),
        "heads": heads,
        "scale": D**-0.5 * 1.4426950408889634,
    }
    return launch(kernel, shape, arguments, (N, "BLOCK_N"), heads)
