"""fp16 matrix product by block pointers, with a ReLU."""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import bounded, launch, normal


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
    m = tl.program_id(0) * BLOCK_M
    n = tl.program_id(1) * BLOCK_N
    a = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (m, 0), (BLOCK_M, BLOCK_K), (1, 0))
    b = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, n), (BLOCK_K, BLOCK_N), (1, 0))
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for _ in range(0, K, BLOCK_K):
        tile_a = tl.load(a, boundary_check=(0, 1), padding_option="zero")
        tile_b = tl.load(b, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(tile_a, tile_b, acc)
        a = tl.advance(a, (0, BLOCK_K))
        b = tl.advance(b, (BLOCK_K, 0))
    y = tl.make_block_ptr(y_ptr, (M, N), (N, 1), (m, n), (BLOCK_M, BLOCK_N), (1, 0))
    tl.store(y, tl.maximum(acc, 0.0).to(y_ptr.dtype.element_ty), boundary_check=(0, 1))


DTYPES = ("fp16",)

SHAPES = (
    {"M": 4096, "N": 2048, "K": 1024},
    {"M": 512, "N": 1024, "K": 512},
    {"M": 1200, "N": 900, "K": 1003},
)


def space() -> Space:
    """Build the space: tile, stages and warps."""
    axes = {
        "BLOCK_M": (32, 64, 128, 256),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (32, 64),
        "num_warps": (2, 4, 8),
        "num_stages": (2, 4),
    }
    return bounded(axes, 128, 2)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    a, b = normal((M, K), dtype, device), normal((K, N), dtype, device)
    arguments = {"a_ptr": a, "b_ptr": b, "y_ptr": a.new_empty(M, N)}
    return launch(kernel, shape, arguments, (M, "BLOCK_M"), (N, "BLOCK_N"))
