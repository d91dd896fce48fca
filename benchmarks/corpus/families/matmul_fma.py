"""fp32 matrix product in full precision: no tensor cores, bound by FMA and registers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import launch


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
    """Compute one tile a program on a 2-D grid."""
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, K, BLOCK_K):
        inside_a = (m[:, None] < M) & (i + k[None, :] < K)
        inside_b = (n[None, :] < N) & (i + k[:, None] < K)
        a = tl.load(a_ptr + m[:, None] * K + (i + k)[None, :], mask=inside_a, other=0.0)
        b = tl.load(b_ptr + (i + k)[:, None] * N + n[None, :], mask=inside_b, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=inside)


DTYPES = ("fp32",)

SHAPES = (
    {"M": 1024, "N": 2048, "K": 1024},
    {"M": 128, "N": 256, "K": 512},
    {"M": 777, "N": 555, "K": 999},
)


def space() -> Space:
    """Build the space: tile, stages, warps and a cap on registers."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (16, 32, 64, 128),
        "BLOCK_K": (16, 32),
        "num_warps": (2, 4, 8),
        "num_stages": (1, 3),
        "maxnreg": (None, 128),
    }
    return (
        Space(axes)
        .where(
            "a thread holds 4 to 64 accumulators, with a cap 32 or more",
            lambda BLOCK_M, BLOCK_N, num_warps, maxnreg: (
                (4 if maxnreg is None else 32) <= BLOCK_M * BLOCK_N // (num_warps * 32) <= 64
            ),
        )
        .where(
            "a thread's body has 1024 multiplications or fewer",
            lambda BLOCK_M, BLOCK_N, BLOCK_K, num_warps: (
                BLOCK_M * BLOCK_N * BLOCK_K // (num_warps * 32) <= 1024
            ),
        )
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    a = torch.randn(M, K, device=device, dtype=torch_dtype(dtype))
    b = torch.randn(K, N, device=device, dtype=torch_dtype(dtype))
    arguments = {"a_ptr": a, "b_ptr": b, "y_ptr": a.new_empty(M, N)}
    return launch(kernel, shape, arguments, (N, "BLOCK_N"), (M, "BLOCK_M"))
