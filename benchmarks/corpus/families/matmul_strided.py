"""bf16 matrix product by strides: every order of the two operands in memory."""

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
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile a program, column by column of tiles."""
    num_m = tl.cdiv(M, BLOCK_M)
    m = (tl.program_id(0) % num_m) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) // num_m) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + (m % M)[:, None] * stride_am + k[None, :] * stride_ak
    b = b_ptr + k[:, None] * stride_bk + (n % N)[None, :] * stride_bn
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, K, BLOCK_K):
        tile_a = tl.load(a, mask=k[None, :] < K - i, other=0.0)
        tile_b = tl.load(b, mask=k[:, None] < K - i, other=0.0)
        acc = tl.dot(tile_a, tile_b, acc)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(y_ptr.dtype.element_ty), mask=inside)


DTYPES = ("bf16",)

SHAPES = (
    {"M": 2048, "N": 2048, "K": 2048, "flip_a": 0, "flip_b": 1},
    {"M": 2048, "N": 2048, "K": 2048, "flip_a": 1, "flip_b": 0},
    {"M": 512, "N": 4096, "K": 1024, "flip_a": 1, "flip_b": 1},
    {"M": 1003, "N": 1501, "K": 777, "flip_a": 0, "flip_b": 0},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (32, 64, 128, 256),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (32, 64),
        "num_warps": (4, 8),
        "num_stages": (1, 3),
    }
    return bounded(axes, 128, 2)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices, transposed in memory where the shape says so."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    a = normal((K, M) if shape["flip_a"] else (M, K), dtype, device)
    b = normal((N, K) if shape["flip_b"] else (K, N), dtype, device)
    a, b = a.T if shape["flip_a"] else a, b.T if shape["flip_b"] else b
    arguments = {"a_ptr": a, "b_ptr": b, "y_ptr": a.new_empty(M, N)}
    arguments |= {"stride_am": a.stride(0), "stride_ak": a.stride(1)}
    arguments |= {"stride_bk": b.stride(0), "stride_bn": b.stride(1)}
    return launch(kernel, shape, arguments, tiles)
