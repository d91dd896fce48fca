"""int8 matrix product into int32, scaled by row and column to fp16; B stored (N, K)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import bounded, launch, tiles


@triton.jit
def kernel(
    a_ptr,
    b_ptr,
    row_ptr,
    col_ptr,
    y_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile a program, column by column of tiles."""
    num_m = tl.cdiv(M, BLOCK_M)
    m = (tl.program_id(0) % num_m) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) // num_m) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + (m % M)[:, None] * K + k[None, :]
    b = b_ptr + (n % N)[None, :] * K + k[:, None]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.int32)
    for i in range(0, K, BLOCK_K):
        tile_a = tl.load(a + i, mask=i + k[None, :] < K, other=0)
        tile_b = tl.load(b + i, mask=i + k[:, None] < K, other=0)
        acc = tl.dot(tile_a, tile_b, acc, out_dtype=tl.int32)
    row = tl.load(row_ptr + m, mask=m < M)[:, None]
    col = tl.load(col_ptr + n, mask=n < N)[None, :]
    y = (acc.to(tl.float32) * row * col).to(tl.float16)
    tl.store(y_ptr + m[:, None] * N + n[None, :], y, mask=(m[:, None] < M) & (n[None, :] < N))


DTYPES = ("i8",)

SHAPES = (
    {"M": 4096, "N": 4096, "K": 4096},
    {"M": 256, "N": 1024, "K": 1024},
    {"M": 32, "N": 8192, "K": 8192},
    {"M": 1000, "N": 3000, "K": 2000},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128, 256),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (64, 128),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    }
    return bounded(axes, 256, 1)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random integers and scales."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    kind = torch_dtype(dtype)
    arguments = {
        "a_ptr": torch.randint(-128, 128, (M, K), device=device, dtype=kind),
        "b_ptr": torch.randint(-128, 128, (N, K), device=device, dtype=kind),
        "row_ptr": torch.rand(M, device=device) * 1e-2,
        "col_ptr": torch.rand(N, device=device) * 1e-2,
        "y_ptr": torch.empty(M, N, device=device, dtype=torch.float16),
    }
    return launch(kernel, shape, arguments, tiles)
