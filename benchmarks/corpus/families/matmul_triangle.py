"""Product of a lower triangle and a matrix in tf32, both row-major: rows differ in length."""

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
    y_ptr,
    M,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile a program, the longest rows first."""
    num_m = tl.cdiv(M, BLOCK_M)
    high = num_m - 1 - tl.program_id(0) % num_m
    m = high * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) // num_m) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, min((high + 1) * BLOCK_M, M), BLOCK_K):
        at = i + k
        in_a = (m[:, None] < M) & (at[None, :] <= m[:, None])
        in_b = (n[None, :] < N) & (at[:, None] < M)
        a = tl.load(a_ptr + m[:, None] * M + at[None, :], mask=in_a, other=0.0)
        b = tl.load(b_ptr + at[:, None] * N + n[None, :], mask=in_b, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32")
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=inside)


DTYPES = ("fp32",)

SHAPES = (
    {"M": 2048, "N": 2048},
    {"M": 512, "N": 256},
    {"M": 1001, "N": 1500},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (16, 32, 64),
        "num_warps": (4, 8),
        "num_stages": (1, 3),
    }
    return bounded(axes, 128, 4)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices; what lies above the diagonal is not read."""
    M, N = shape["M"], shape["N"]
    a, b = normal((M, M), dtype, device), normal((M, N), dtype, device)
    arguments = {"a_ptr": a, "b_ptr": b, "y_ptr": torch.empty_like(b)}
    return launch(kernel, shape, arguments, tiles)
