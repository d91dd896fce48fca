"""Batched matrix product, bf16, B stored (N, K); the batch on the second axis of the grid."""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import bounded, launch, normal


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
):
    """Compute one tile of one product a program."""
    batch = tl.program_id(1).to(tl.int64)
    num_n = tl.cdiv(N, BLOCK_N)
    m = (tl.program_id(0) // num_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) % num_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + batch * M * K + m[:, None] * K + k[None, :]
    b = b_ptr + batch * N * K + n[:, None] * K + k[None, :]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, K, BLOCK_K):
        inside = i + k[None, :] < K
        tile_a = tl.load(a + i, mask=inside & (m[:, None] < M), other=0.0)
        tile_b = tl.load(b + i, mask=inside & (n[:, None] < N), other=0.0)
        acc = tl.dot(tile_a, tile_b.T, acc)
    y = y_ptr + batch * M * N + m[:, None] * N + n[None, :]
    tl.store(y, acc.to(y_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


DTYPES = ("bf16",)

SHAPES = (
    {"B": 64, "M": 1024, "N": 1024, "K": 128},
    {"B": 8, "M": 128, "N": 128, "K": 512},
    {"B": 512, "M": 64, "N": 256, "K": 256},
    {"B": 12, "M": 777, "N": 333, "K": 1000},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128, 256),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (32, 64),
        "num_warps": (2, 4, 8),
        "num_stages": (2, 3, 4),
    }
    return bounded(axes, 128, 2)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random batches."""
    B, M, N, K = (shape[name] for name in "BMNK")
    a = normal((B, M, K), dtype, device)
    b = normal((B, N, K), dtype, device)
    arguments = {"a_ptr": a, "b_ptr": b, "y_ptr": a.new_empty(B, M, N)}
    return launch(
        kernel,
        shape,
        arguments,
        lambda v: (triton.cdiv(v["M"], v["BLOCK_M"]) * triton.cdiv(v["N"], v["BLOCK_N"]), B),
    )
