"""Causal flash attention: full blocks of keys first, then the masked ones on the diagonal."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import launch


@triton.jit
def _walk(
    q,
    k_ptr,
    v_ptr,
    top,
    total,
    acc,
    m,
    low,
    high,
    N,
    D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
):
    d = tl.arange(0, D)
    for start in range(low, high, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        at = n[:, None] * D + d[None, :]
        if MASKED:
            k = tl.load(k_ptr + at, mask=n[:, None] < N, other=0.0)
            s = tl.dot(q, k.T)
            s = tl.where((m[:, None] >= n[None, :]) & (n[None, :] < N), s, -1.0e30)
        else:
            s = tl.dot(q, tl.load(k_ptr + at).T)
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + at, mask=n[:, None] < N, other=0.0) if MASKED else tl.load(v_ptr + at)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        top = higher
    return top, total, acc


@triton.jit
def kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    y_ptr,
    N,
    scale,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Process BLOCK_M queries of one head a program, the longest first."""
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M
    base = tl.program_id(1).to(tl.int64) * N * D
    m, d = first + tl.arange(0, BLOCK_M), tl.arange(0, D)
    at = base + m[:, None] * D + d[None, :]
    q = tl.load(q_ptr + at, mask=m[:, None] < N, other=0.0)
    q = (q * scale).to(q.dtype)
    top = tl.full([BLOCK_M], -1.0e30, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    k, v = k_ptr + base, v_ptr + base
    full = (first // BLOCK_N) * BLOCK_N
    end = tl.minimum(first + BLOCK_M, N)
    top, total, acc = _walk(q, k, v, top, total, acc, m, 0, full, N, D, BLOCK_N, False)
    top, total, acc = _walk(q, k, v, top, total, acc, m, full, end, N, D, BLOCK_N, True)
    y = (acc / total[:, None]).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + at, y, mask=m[:, None] < N)


DTYPES = ("fp16",)

SHAPES = (
    {"B": 2, "H": 16, "N": 4096, "D": 128},
    {"B": 1, "H": 8, "N": 1024, "D": 64},
    {"B": 16, "H": 16, "N": 512, "D": 64},
    {"B": 3, "H": 5, "N": 1777, "D": 128},
)


def space() -> Space:
    """Build the space: queries, keys, stages and warps."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (16, 32, 64, 128),
        "num_warps": (2, 4, 8),
        "num_stages": (1, 2, 3, 4),
    }
    return (
        Space(axes)
        .where(
            "a thread holds 4 to 128 scores, and 128 results at most",
            lambda BLOCK_M, BLOCK_N, D, num_warps: (
                4 <= BLOCK_M * BLOCK_N // (num_warps * 32) <= 128
                and BLOCK_M * D // (num_warps * 32) <= 128
            ),
        )
        .where(
            "queries and the stages of keys and values fit in shared memory",
            lambda BLOCK_M, BLOCK_N, D, num_stages: (
                (BLOCK_M + 2 * BLOCK_N * num_stages) * D * 2 <= 220 * 1024
            ),
        )
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random queries, keys and values."""
    B, H, N, D = (shape[name] for name in "BHND")
    q, k, v = (torch.randn(B, H, N, D, device=device, dtype=torch_dtype(dtype)) for _ in range(3))
    arguments = {"q_ptr": q, "k_ptr": k, "v_ptr": v, "y_ptr": torch.empty_like(q)}
    return launch(
        kernel,
        shape,
        {**arguments, "scale": D**-0.5 * 1.4426950408889634},
        (N, "BLOCK_M"),
        B * H,
    )
