"""Matrix product with the inner extent split over programs: atomic adds into an fp32 result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import bounded, launch


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
    SPLIT_K: tl.constexpr,
):
    """Process every SPLIT_K-th block of K of one tile; add to y, which starts at 0."""
    num_n = tl.cdiv(N, BLOCK_N)
    m = (tl.program_id(0) // num_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) % num_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    a = a_ptr + (m % M)[:, None] * K + k[None, :]
    b = b_ptr + k[:, None] * N + (n % N)[None, :]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, K, BLOCK_K * SPLIT_K):
        tile_a = tl.load(a, mask=k[None, :] < K - i, other=0.0)
        tile_b = tl.load(b, mask=k[:, None] < K - i, other=0.0)
        acc = tl.dot(tile_a, tile_b, acc)
        a += BLOCK_K * SPLIT_K
        b += BLOCK_K * SPLIT_K * N
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.atomic_add(y_ptr + m[:, None] * N + n[None, :], acc, mask=inside, sem="relaxed")


DTYPES = ("fp16",)

SHAPES = (
    {"M": 16, "N": 4096, "K": 14336},
    {"M": 256, "N": 256, "K": 16384},
    {"M": 1024, "N": 2048, "K": 4096},
    {"M": 99, "N": 1003, "K": 5001},
)


def space() -> Space:
    """Build the space: tile, splits, stages and warps."""
    axes = {
        "BLOCK_M": (16, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (64, 128),
        "SPLIT_K": (1, 4, 16),
        "num_warps": (4, 8),
        "num_stages": (3, 5),
    }
    return bounded(axes, 128, 2)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices, and a result at zero."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    a = torch.randn(M, K, device=device, dtype=torch_dtype(dtype))
    b = torch.randn(K, N, device=device, dtype=torch_dtype(dtype))
    y = torch.zeros(M, N, device=device)
    arguments = {"a_ptr": a, "b_ptr": b, "y_ptr": y}

    def grid(v: Mapping[str, Any]) -> tuple[int, int]:
        tiles = triton.cdiv(v["M"], v["BLOCK_M"]) * triton.cdiv(v["N"], v["BLOCK_N"])
        return tiles, v["SPLIT_K"]

    return launch(kernel, shape, arguments, grid)
