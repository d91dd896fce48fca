"""Two products that share A, joined by SiLU and a product: the first half of a gated MLP."""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import SHARED, bounded, launch, normal, tiles


@triton.jit
def kernel(
    a_ptr,
    w_ptr,
    y_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile a program; w has the gate's N rows of K, then the other's."""
    num_m = tl.cdiv(M, BLOCK_M)
    m = (tl.program_id(0) % num_m) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) // num_m) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + (m % M)[:, None] * K + k[None, :]
    w = w_ptr + (n % N)[None, :] * K + k[:, None]
    gate = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    up = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, K, BLOCK_K):
        inside = k[:, None] < K - i
        tile = tl.load(a + i, mask=k[None, :] < K - i, other=0.0)
        gate = tl.dot(tile, tl.load(w + i, mask=inside, other=0.0), gate)
        up = tl.dot(tile, tl.load(w + N * K + i, mask=inside, other=0.0), up)
    y = (gate * tl.sigmoid(gate) * up).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + m[:, None] * N + n[None, :], y, mask=(m[:, None] < M) & (n[None, :] < N))


DTYPES = ("bf16",)

SHAPES = (
    {"M": 2048, "N": 4096, "K": 1024},
    {"M": 16, "N": 8192, "K": 2048},
    {"M": 999, "N": 1500, "K": 1000},
)


def space() -> Space:
    """Build the space: tile, stages and warps; there are two results and two matrices B."""
    axes = {
        "BLOCK_M": (16, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    }
    return bounded(axes, 64, 2).where(
        "both weights fit in shared memory",
        lambda BLOCK_M, BLOCK_N, BLOCK_K, num_stages: (
            (BLOCK_M + 2 * BLOCK_N) * BLOCK_K * 2 * num_stages <= SHARED
        ),
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices."""
    M, N, K = shape["M"], shape["N"], shape["K"]
    a, w = normal((M, K), dtype, device), normal((2 * N, K), dtype, device)
    arguments = {"a_ptr": a, "w_ptr": w / K**0.5, "y_ptr": a.new_empty(M, N)}
    return launch(kernel, shape, arguments, tiles)
