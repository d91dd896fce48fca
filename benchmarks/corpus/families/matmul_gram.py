"""The lower triangle of A A^T: programs above the diagonal end at once."""

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
    y_ptr,
    M,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile a program on a 2-D grid."""
    if tl.program_id(0) * BLOCK_N >= (tl.program_id(1) + 1) * BLOCK_M:
        return
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + (m % M)[:, None] * K + k[None, :]
    b = a_ptr + (n % M)[None, :] * K + k[:, None]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, K, BLOCK_K):
        tile_a = tl.load(a + i, mask=k[None, :] < K - i, other=0.0)
        tile_b = tl.load(b + i, mask=k[:, None] < K - i, other=0.0)
        acc = tl.dot(tile_a, tile_b, acc)
    inside = (m[:, None] < M) & (n[None, :] <= m[:, None])
    tl.store(y_ptr + m[:, None] * M + n[None, :], acc, mask=inside)


DTYPES = ("bf16",)

SHAPES = (
    {"M": 4096, "K": 2048},
    {"M": 512, "K": 4096},
    {"M": 1501, "K": 1000},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (32, 64, 128, 256),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (32, 64),
        "num_warps": (4, 8),
        "num_stages": (2, 3),
    }
    return bounded(axes, 128, 2)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on a random matrix, and a result at zero."""
    M, K = shape["M"], shape["K"]
    y = torch.zeros(M, M, device=device)
    arguments = {"a_ptr": normal((M, K), dtype, device), "y_ptr": y}
    return launch(kernel, shape, arguments, (M, "BLOCK_N"), (M, "BLOCK_M"))
