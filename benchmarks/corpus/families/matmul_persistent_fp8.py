"""Persistent fp8 matrix product, B stored (N, K), in groups of rows of tiles."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import bounded, launch, normal, walkers


@triton.jit
def kernel(
    a_ptr,
    b_ptr,
    y_ptr,
    M,
    N,
    K,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """Compute every PROGRAMS-th tile."""
    num_m, num_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    for tile in range(tl.program_id(0), num_m * num_n, PROGRAMS):
        group = tile // (GROUP * num_n)
        high = min(num_m - group * GROUP, GROUP)
        m = (group * GROUP + (tile % (GROUP * num_n)) % high) * BLOCK_M + tl.arange(0, BLOCK_M)
        n = ((tile % (GROUP * num_n)) // high) * BLOCK_N + tl.arange(0, BLOCK_N)
        a = a_ptr + (m % M)[:, None] * K + k[None, :]
        b = b_ptr + (n % N)[None, :] * K + k[:, None]
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for i in range(0, K, BLOCK_K):
            tile_a = tl.load(a + i, mask=k[None, :] < K - i, other=0.0)
            tile_b = tl.load(b + i, mask=k[:, None] < K - i, other=0.0)
            acc = tl.dot(tile_a, tile_b, acc)
        inside = (m[:, None] < M) & (n[None, :] < N)
        tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(tl.float16), mask=inside)


DTYPES = ("fp8e4nv",)

SHAPES = (
    {"M": 4096, "N": 4096, "K": 4096},
    {"M": 768, "N": 1024, "K": 2048},
    {"M": 8192, "N": 1500, "K": 528},
)


def space() -> Space:
    """Build the space: tile, programs in all, stages and warps."""
    axes = {
        "BLOCK_M": (64, 128),
        "BLOCK_N": (64, 128, 256),
        "BLOCK_K": (64, 128),
        "PROGRAMS": (132, 264),
        "num_warps": (4, 8),
        "num_stages": (2, 4),
    }
    return bounded(axes, 128, 1)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    arguments = {
        "a_ptr": normal((M, K), dtype, device),
        "b_ptr": normal((N, K), dtype, device),
        "y_ptr": torch.empty(M, N, device=device, dtype=torch.float16),
        "GROUP": 8,
    }
    return launch(kernel, shape, arguments, walkers)
