"""Stream-K: every program takes an equal share of all tiles' blocks of K; atomic adds."""

from __future__ import annotations

from collections.abc import Mapping

import torch
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
    PROGRAMS: tl.constexpr,
):
    """Process a run of blocks that may begin and end inside a tile; add to y, which starts at 0."""
    num_n, num_k = tl.cdiv(N, BLOCK_N), tl.cdiv(K, BLOCK_K)
    blocks = tl.cdiv(M, BLOCK_M) * num_n * num_k
    share = tl.cdiv(blocks, PROGRAMS)
    at = tl.program_id(0) * share
    end = min(at + share, blocks)
    k = tl.arange(0, BLOCK_K)
    while at < end:
        tile = at // num_k
        first = at % num_k
        last = min(num_k, first + end - at)
        m = (tile // num_n) * BLOCK_M + tl.arange(0, BLOCK_M)
        n = (tile % num_n) * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for i in range(first, last):
            j = i * BLOCK_K + k
            a = tl.load(a_ptr + (m % M)[:, None] * K + j[None, :], mask=j[None, :] < K, other=0.0)
            b = tl.load(b_ptr + j[:, None] * N + (n % N)[None, :], mask=j[:, None] < K, other=0.0)
            acc = tl.dot(a, b, acc)
        inside = (m[:, None] < M) & (n[None, :] < N)
        tl.atomic_add(y_ptr + m[:, None] * N + n[None, :], acc, mask=inside, sem="relaxed")
        at += last - first


DTYPES = ("fp16",)

SHAPES = (
    {"M": 1536, "N": 1536, "K": 4096},
    {"M": 256, "N": 384, "K": 8192},
    {"M": 1001, "N": 1300, "K": 2001},
)


def space() -> Space:
    """Build the space: tile, programs in all, stages and warps."""
    axes = {
        "BLOCK_M": (64, 128),
        "BLOCK_N": (64, 128, 256),
        "BLOCK_K": (32, 64),
        "PROGRAMS": (132, 264),
        "num_warps": (4, 8),
        "num_stages": (2, 4),
    }
    return bounded(axes, 128, 2)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices, and a result at zero."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    a, b = normal((M, K), dtype, device), normal((K, N), dtype, device)
    y = torch.zeros(M, N, device=device)
    arguments = {"a_ptr": a, "b_ptr": b, "y_ptr": y}
    return launch(kernel, shape, arguments, "PROGRAMS")
