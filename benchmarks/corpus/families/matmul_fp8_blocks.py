"""fp8 matrix product with scales: A by row and 128 of K, B by 128 x 128; B stored (N, K)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import bounded, launch, normal, tiles


@triton.jit
def kernel(
    a_ptr,
    b_ptr,
    scale_a_ptr,
    scale_b_ptr,
    y_ptr,
    M,
    N,
    K,
    scales,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile a program, row by row of tiles; scale each block of K, then add it."""
    num_n = tl.cdiv(N, BLOCK_N)
    m = (tl.program_id(0) // num_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) % num_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + (m % M)[:, None] * K + k[None, :]
    b = b_ptr + (n % N)[None, :] * K + k[:, None]
    scale_a = scale_a_ptr + (m % M) * scales
    scale_b = scale_b_ptr + (n % N) // 128 * scales
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, K, BLOCK_K):
        tile_a = tl.load(a + i, mask=k[None, :] < K - i, other=0.0)
        tile_b = tl.load(b + i, mask=k[:, None] < K - i, other=0.0)
        row = tl.load(scale_a + i // 128)
        col = tl.load(scale_b + i // 128)
        acc += tl.dot(tile_a, tile_b) * row[:, None] * col[None, :]
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(y_ptr.dtype.element_ty), mask=inside)


DTYPES = ("fp8e4nv",)

SHAPES = (
    {"M": 4096, "N": 2048, "K": 4096},
    {"M": 64, "N": 7168, "K": 2048},
    {"M": 1000, "N": 1536, "K": 1504},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (16, 64, 128),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (64, 128),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    }
    return bounded(axes, 128, 1)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices and scales."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    scales = triton.cdiv(K, 128)
    arguments = {
        "a_ptr": normal((M, K), dtype, device),
        "b_ptr": normal((N, K), dtype, device),
        "scale_a_ptr": torch.rand(M, scales, device=device),
        "scale_b_ptr": torch.rand(triton.cdiv(N, 128), scales, device=device),
        "y_ptr": torch.empty(M, N, device=device, dtype=torch.bfloat16),
        "scales": scales,
    }
    return launch(kernel, shape, arguments, tiles)
