"""bf16 matrix product with int8 weights, widened in the loop; both row-major."""

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
    scale_ptr,
    y_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile a program, row by row of tiles; a scale for each column."""
    num_n = tl.cdiv(N, BLOCK_N)
    m = (tl.program_id(0) // num_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) % num_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, K, BLOCK_K):
        at = i + k
        in_a = (m[:, None] < M) & (at[None, :] < K)
        in_b = (n[None, :] < N) & (at[:, None] < K)
        a = tl.load(a_ptr + m[:, None] * K + at[None, :], mask=in_a, other=0.0)
        b = tl.load(b_ptr + at[:, None] * N + n[None, :], mask=in_b, other=0)
        acc = tl.dot(a, b.to(a.dtype), acc)
    scale = tl.load(scale_ptr + n, mask=n < N, other=0.0)
    y = (acc * scale[None, :]).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + m[:, None] * N + n[None, :], y, mask=(m[:, None] < M) & (n[None, :] < N))


DTYPES = ("bf16",)

SHAPES = (
    {"M": 1024, "N": 4096, "K": 2048},
    {"M": 16, "N": 4096, "K": 4096},
    {"M": 301, "N": 1999, "K": 1003},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (32, 64),
        "num_warps": (4, 8),
        "num_stages": (2, 4),
    }
    return bounded(axes, 64, 2)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices and scales."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    a = normal((M, K), dtype, device)
    arguments = {
        "a_ptr": a,
        "b_ptr": normal((K, N), "i8", device),
        "scale_ptr": torch.rand(N, device=device),
        "y_ptr": a.new_empty(M, N),
    }
    return launch(kernel, shape, arguments, tiles)
