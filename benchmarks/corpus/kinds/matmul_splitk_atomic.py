"""A product whose depth is split over programs that add atomically."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile of one part of the depth a program."""
    across = tl.cdiv(N, BLOCK_N)
    rows = (tl.program_id(0) // across) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (tl.program_id(0) % across) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    a = a_ptr + (rows % M)[:, None] * K + k[None, :]
    b = b_ptr + k[:, None] * N + (cols % N)[None, :]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(tl.cdiv(K, BLOCK_K * SPLITS)):
        left = K - i * BLOCK_K * SPLITS
        tile_a = tl.load(a, mask=k[None, :] < left, other=0.0)
        tile_b = tl.load(b, mask=k[:, None] < left, other=0.0)
        acc = tl.dot(tile_a, tile_b, acc)
        a += BLOCK_K * SPLITS
        b += BLOCK_K * SPLITS * N
    at = c_ptr + rows[:, None] * N + cols[None, :]
    tl.atomic_add(at, acc, mask=(rows[:, None] < M) & (cols[None, :] < N), sem="relaxed")


DTYPES = ("fp16",)

SHAPES = ({"M": 32, "N": 4096, "K": 8192}, {"M": 300, "N": 500, "K": 20000})


def space() -> Space:
    """Build the space: tile, parts, warps and stages."""
    axes = {
        "BLOCK_M": (16, 32, 64),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (64, 128),
        "SPLITS": (1, 4, 16),
        "num_warps": (2, 4),
        "num_stages": (2, 4),
    }
    return held(axes, 4, 64, "BLOCK_M", "BLOCK_N")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch into zeros."""
    M, N, K = (shape[name] for name in ("M", "N", "K"))
    arguments = {
        "a_ptr": normal((M, K), dtype, device),
        "b_ptr": normal((K, N), dtype, device),
        "c_ptr": torch.zeros(M, N, device=device),
    }

    def grid(v: Mapping[str, Any]) -> tuple[int, int]:
        return triton.cdiv(M, v["BLOCK_M"]) * triton.cdiv(N, v["BLOCK_N"]), v["SPLITS"]

    return launch(kernel, shape, arguments, grid)
