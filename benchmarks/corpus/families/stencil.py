"""A nine-point stencil with a nonlinear flux on a grid: overlapping loads, unaligned by one."""

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
def kernel(x_ptr, y_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Compute one tile of inner points a program; the border of y stays as it is."""
    m = 1 + tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = 1 + tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    inside = (m < M - 1) & (n < N - 1)
    at = m * N + n
    centre = tl.load(x_ptr + at, mask=inside, other=0.0)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in tl.static_range(-1, 2):
        for j in tl.static_range(-1, 2):
            near = tl.load(x_ptr + at + i * N + j, mask=inside, other=0.0)
            step = near - centre
            acc += step / tl.sqrt(1.0 + step * step)
    tl.store(y_ptr + at, centre + 0.1 * acc, mask=inside)


DTYPES = ("fp32",)

SHAPES = (
    {"M": 8192, "N": 8192},
    {"M": 512, "N": 512},
    {"M": 2003, "N": 3001},
)


def space() -> Space:
    """Build the space: tile and warps."""
    axes = {
        "BLOCK_M": (1, 2, 4, 8, 16, 32, 64, 128),
        "BLOCK_N": (32, 64, 128, 256, 512, 1024),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 1, 16, "BLOCK_M", "BLOCK_N")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on a random grid."""
    M, N = shape["M"], shape["N"]
    x = torch.randn(M, N, device=device, dtype=torch_dtype(dtype))
    arguments = {"x_ptr": x, "y_ptr": torch.zeros_like(x)}
    return launch(kernel, shape, arguments, (N - 2, "BLOCK_N"), (M - 2, "BLOCK_M"))
