"""Persistent matrix product: as many programs as fit at once, each walking over tiles."""

from __future__ import annotations

from collections.abc import Mapping

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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PROGRAMS: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    """Compute every PROGRAMS-th tile; FLATTEN joins both loops so that loads run ahead of tiles."""
    num_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * num_n
    k = tl.arange(0, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=FLATTEN):
        m = (tile // num_n) * BLOCK_M + tl.arange(0, BLOCK_M)
        n = (tile % num_n) * BLOCK_N + tl.arange(0, BLOCK_N)
        rows, cols = tl.where(m < M, m, 0), tl.where(n < N, n, 0)
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for i in range(0, K, BLOCK_K):
            at = i + k
            a = tl.load(a_ptr + rows[:, None] * K + at[None, :], mask=at[None, :] < K, other=0.0)
            b = tl.load(b_ptr + at[:, None] * N + cols[None, :], mask=at[:, None] < K, other=0.0)
            acc = tl.dot(a, b, acc)
        inside = (m[:, None] < M) & (n[None, :] < N)
        tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(y_ptr.dtype.element_ty), mask=inside)


DTYPES = ("bf16",)

SHAPES = (
    {"M": 4096, "N": 4096, "K": 2048},
    {"M": 640, "N": 1024, "K": 1024},
    {"M": 16384, "N": 2048, "K": 256},
    {"M": 1501, "N": 2002, "K": 1000},
)


def space() -> Space:
    """Build the space: tile, programs in all (1 or 2 an SM of an H200), stages and warps."""
    axes = {
        "BLOCK_M": (64, 128, 256),
        "BLOCK_N": (64, 128, 256),
        "BLOCK_K": (32, 64),
        "PROGRAMS": (132, 264),
        "FLATTEN": (False, True),
        "num_warps": (4, 8),
        "num_stages": (3, 4),
    }
    return bounded(axes, 256, 2)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    a = normal((M, K), dtype, device)
    b = normal((K, N), dtype, device)
    arguments = {"a_ptr": a, "b_ptr": b, "y_ptr": a.new_empty(M, N)}

    return launch(kernel, shape, arguments, walkers)
