"""fp32 matrix product by tf32 tensor cores: A transposed in memory, B row-major."""

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
    y_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile a program, row by row of tiles."""
    num_n = tl.cdiv(N, BLOCK_N)
    m = (tl.program_id(0) // num_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) % num_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, K, BLOCK_K):
        inside_a = (m[:, None] < M) & (i + k[None, :] < K)
        inside_b = (n[None, :] < N) & (i + k[:, None] < K)
        a = tl.load(a_ptr + (i + k)[None, :] * M + m[:, None], mask=inside_a, other=0.0)
        b = tl.load(b_ptr + (i + k)[:, None] * N + n[None, :], mask=inside_b, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32")
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=inside)


DTYPES = ("fp32",)

SHAPES = (
    {"M": 2048, "N": 4096, "K": 2048},
    {"M": 256, "N": 256, "K": 1024},
    {"M": 8192, "N": 128, "K": 1024},
    {"M": 1001, "N": 999, "K": 1003},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (16, 32, 64),
        "num_warps": (4, 8),
        "num_stages": (1, 2, 4),
    }
    return bounded(axes, 128, 4)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    a = torch.randn(K, M, device=device, dtype=torch_dtype(dtype))
    b = torch.randn(K, N, device=device, dtype=torch_dtype(dtype))
    arguments = {"a_ptr": a, "b_ptr": b, "y_ptr": a.new_empty(M, N)}
    return launch(kernel, shape, arguments, tiles)
