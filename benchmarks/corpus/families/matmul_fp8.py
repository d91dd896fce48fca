"""fp8 (e4m3) matrix product into bf16, one scale for all; B stored (N, K)."""

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
    y_ptr,
    M,
    N,
    K,
    scale,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile a program, in groups of rows of tiles."""
    pid = tl.program_id(0)
    num_m, num_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP * num_n)
    high = min(num_m - group * GROUP, GROUP)
    pid_m = group * GROUP + (pid % (GROUP * num_n)) % high
    pid_n = (pid % (GROUP * num_n)) // high
    m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + (m % M)[:, None] * K + k[None, :]
    b = b_ptr + (n % N)[None, :] * K + k[:, None]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, K, BLOCK_K):
        tile_a = tl.load(a, mask=k[None, :] < K - i, other=0.0)
        tile_b = tl.load(b, mask=k[:, None] < K - i, other=0.0)
        acc = tl.dot(tile_a, tile_b, acc)
        a += BLOCK_K
        b += BLOCK_K
    y = (acc * scale).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + m[:, None] * N + n[None, :], y, mask=(m[:, None] < M) & (n[None, :] < N))


DTYPES = ("fp8e4nv",)

SHAPES = (
    {"M": 4096, "N": 4096, "K": 8192},
    {"M": 512, "N": 512, "K": 2048},
    {"M": 16, "N": 14336, "K": 4096},
    {"M": 1001, "N": 3003, "K": 2008},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (16, 64, 128, 256),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (64, 128, 256),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    }
    return bounded(axes, 128, 1)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    arguments = {
        "a_ptr": normal((M, K), dtype, device),
        "b_ptr": normal((N, K), dtype, device),
        "y_ptr": torch.empty(M, N, device=device, dtype=torch.bfloat16),
        "scale": 0.125,
        "GROUP": 8,
    }
    return launch(kernel, shape, arguments, tiles)
