"""Sum over the rows of a matrix: a loop down each column block, split with atomics."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch


@triton.jit
def kernel(
    x_ptr,
    y_ptr,
    M,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Process BLOCK_N columns a program, every SPLIT-th block of rows; add to y, 0 before."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.arange(0, BLOCK_M)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(tl.program_id(1) * BLOCK_M, M, SPLIT * BLOCK_M):
        inside = (i + m[:, None] < M) & (n[None, :] < N)
        acc += tl.load(x_ptr + (i + m)[:, None].to(tl.int64) * N + n[None, :], inside, other=0.0)
    total = tl.sum(acc, 0)
    if SPLIT == 1:
        tl.store(y_ptr + n, total, mask=n < N)
    else:
        tl.atomic_add(y_ptr + n, total, mask=n < N, sem="relaxed")


DTYPES = ("fp32",)

SHAPES = (
    {"M": 16384, "N": 4096},
    {"M": 2048, "N": 256},
    {"M": 200000, "N": 64},
    {"M": 1001, "N": 30003},
)


def space() -> Space:
    """Build the space: tile, splits of the rows and warps."""
    axes = {
        "BLOCK_M": (1, 4, 16, 64),
        "BLOCK_N": (32, 64, 128, 256),
        "SPLIT": (1, 8, 64, 256),
        "num_warps": (1, 2, 4, 8),
    }
    return held(axes, 1, 64, "BLOCK_M", "BLOCK_N").where(
        "a program walks 1024 blocks of rows at most",
        lambda M, BLOCK_M, SPLIT: triton.cdiv(M, BLOCK_M * SPLIT) <= 1024,
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on a random matrix, and sums at zero."""
    M, N = shape["M"], shape["N"]
    x = torch.randn(M, N, device=device, dtype=torch_dtype(dtype))
    arguments = {"x_ptr": x, "y_ptr": torch.zeros(N, device=device)}
    return launch(kernel, shape, arguments, (N, "BLOCK_N"), "SPLIT")
