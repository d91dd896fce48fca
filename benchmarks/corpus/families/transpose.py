"""Transpose of a matrix by tiles; the order of the programs along rows or in groups."""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal, tiles


@triton.jit
def kernel(
    x_ptr,
    y_ptr,
    M,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Transpose one tile a program."""
    pid = tl.program_id(0)
    num_m, num_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP * num_n)
    high = min(num_m - group * GROUP, GROUP)
    pid_m = group * GROUP + (pid % (GROUP * num_n)) % high
    pid_n = (pid % (GROUP * num_n)) // high
    m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (m[:, None] < M) & (n[None, :] < N)
    x = tl.load(x_ptr + m[:, None] * N + n[None, :], mask=inside)
    tl.store(y_ptr + n[:, None] * M + m[None, :], x.T, mask=inside.T)


DTYPES = ("fp16", "fp32")

SHAPES = (
    {"M": 8192, "N": 8192},
    {"M": 512, "N": 1024},
    {"M": 65536, "N": 256},
    {"M": 4001, "N": 3003},
)


def space() -> Space:
    """Build the space: tile, group and warps."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128, 256),
        "BLOCK_N": (16, 32, 64, 128, 256),
        "GROUP": (1, 8),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 2, 64, "BLOCK_M", "BLOCK_N")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on a random matrix."""
    M, N = shape["M"], shape["N"]
    x = normal((M, N), dtype, device)
    arguments = {"x_ptr": x, "y_ptr": x.new_empty(N, M)}
    return launch(kernel, shape, arguments, tiles)
