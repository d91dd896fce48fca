"""fp32 matrix product by tf32 tensor cores: both operands row-major, groups of rows of tiles."""

from __future__ import annotations

from collections.abc import Mapping

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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Compute one tile a program."""
    pid = tl.program_id(0)
    num_m, num_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP * num_n)
    high = min(num_m - group * GROUP, GROUP)
    m = (group * GROUP + (pid % (GROUP * num_n)) % high) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = ((pid % (GROUP * num_n)) // high) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + (m % M)[:, None] * K + k[None, :]
    b = b_ptr + k[:, None] * N + (n % N)[None, :]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, K, BLOCK_K):
        tile_a = tl.load(a, mask=k[None, :] < K - i, other=0.0)
        tile_b = tl.load(b, mask=k[:, None] < K - i, other=0.0)
        acc = tl.dot(tile_a, tile_b, acc, input_precision="tf32")
        a += BLOCK_K
        b += BLOCK_K * N
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=inside)


DTYPES = ("fp32",)

SHAPES = (
    {"M": 2048, "N": 2048, "K": 2048},
    {"M": 384, "N": 512, "K": 1024},
    {"M": 4096, "N": 1024, "K": 256},
    {"M": 1003, "N": 777, "K": 1111},
)


def space() -> Space:
    """Build the space: tile, groups, stages and warps."""
    axes = {
        "BLOCK_M": (32, 64, 128),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (16, 32, 64),
        "GROUP": (8,),
        "num_warps": (4, 8),
        "num_stages": (2, 4),
    }
    return bounded(axes, 128, 4)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    a, b = normal((M, K), dtype, device), normal((K, N), dtype, device)
    arguments = {"a_ptr": a, "b_ptr": b, "y_ptr": a.new_empty(M, N)}
    return launch(kernel, shape, arguments, tiles)
