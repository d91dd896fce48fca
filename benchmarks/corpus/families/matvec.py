"""Matrix times vector: memory-bound, a tile of the matrix at a time and one sum at the end."""

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
    a_ptr,
    x_ptr,
    y_ptr,
    M,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute BLOCK_M rows a program."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros([BLOCK_M, BLOCK_K], tl.float32)
    for i in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        k = i + tl.arange(0, BLOCK_K)
        inside = (m[:, None] < M) & (k[None, :] < K)
        a = tl.load(a_ptr + m[:, None].to(tl.int64) * K + k[None, :], mask=inside, other=0.0)
        x = tl.load(x_ptr + k, mask=k < K, other=0.0).to(tl.float32)
        acc += a.to(tl.float32) * x[None, :]
    tl.store(y_ptr + m, tl.sum(acc, 1), mask=m < M)


DTYPES = ("fp16",)

SHAPES = (
    {"M": 14336, "K": 4096},
    {"M": 512, "K": 8192},
    {"M": 100000, "K": 1024},
    {"M": 4099, "K": 4099},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (1, 2, 4, 8, 16, 32, 64),
        "BLOCK_K": (64, 128, 256, 512, 1024),
        "STAGES": (1, 2, 4),
        "num_warps": (1, 2, 4, 8),
    }
    return held(axes, 2, 32, "BLOCK_M", "BLOCK_K").where(
        "the stages fit in shared memory",
        lambda BLOCK_M, BLOCK_K, STAGES: BLOCK_M * BLOCK_K * 2 * STAGES <= 160 * 1024,
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on a random matrix and vector."""
    M, K = shape["M"], shape["K"]
    a = torch.randn(M, K, device=device, dtype=torch_dtype(dtype))
    x = torch.randn(K, device=device, dtype=torch_dtype(dtype))
    y = torch.empty(M, device=device)
    arguments = {"a_ptr": a, "x_ptr": x, "y_ptr": y}
    return launch(kernel, shape, arguments, (M, "BLOCK_M"))
