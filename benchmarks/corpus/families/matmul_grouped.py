"""Many products in one launch: few programs walk over tiles of groups whose rows are in memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import bounded, launch, normal


@triton.jit
def kernel(
    a_ptr,
    b_ptr,
    offset_ptr,
    y_ptr,
    groups,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """Process every PROGRAMS-th tile of all groups; group g has rows offset[g] to offset[g + 1]."""
    tile = tl.program_id(0)
    done = 0
    num_n = tl.cdiv(N, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    for g in range(groups):
        first = tl.load(offset_ptr + g)
        last = tl.load(offset_ptr + g + 1)
        here = tl.cdiv(last - first, BLOCK_M) * num_n
        while tile < done + here:
            m = first + ((tile - done) // num_n) * BLOCK_M + tl.arange(0, BLOCK_M)
            n = ((tile - done) % num_n) * BLOCK_N + tl.arange(0, BLOCK_N)
            a = a_ptr + m[:, None] * K + k[None, :]
            b = b_ptr + g * N * K + k[:, None] * N + n[None, :]
            acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
            for i in range(0, K, BLOCK_K):
                in_a = (m[:, None] < last) & (k[None, :] < K - i)
                in_b = (n[None, :] < N) & (k[:, None] < K - i)
                tile_a = tl.load(a + i, mask=in_a, other=0.0)
                tile_b = tl.load(b + i * N, mask=in_b, other=0.0)
                acc = tl.dot(tile_a, tile_b, acc)
            inside = (m[:, None] < last) & (n[None, :] < N)
            y = y_ptr + m[:, None] * N + n[None, :]
            tl.store(y, acc.to(y_ptr.dtype.element_ty), mask=inside)
            tile += PROGRAMS
        done += here


DTYPES = ("fp16",)

SHAPES = (
    {"groups": 8, "rows": 8192, "N": 1024, "K": 1024},
    {"groups": 32, "rows": 1024, "N": 512, "K": 512},
    {"groups": 5, "rows": 3001, "N": 1001, "K": 302},
)


def space() -> Space:
    """Build the space: tile, programs in all, stages and warps."""
    axes = {
        "BLOCK_M": (32, 64, 128),
        "BLOCK_N": (64, 128, 256),
        "BLOCK_K": (32, 64),
        "PROGRAMS": (132, 264),
        "num_warps": (4, 8),
        "num_stages": (2, 4),
    }
    return bounded(axes, 128, 2)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random matrices; later groups have more rows."""
    groups, rows, N, K = (shape[name] for name in ("groups", "rows", "N", "K"))
    share = torch.arange(groups + 1, device=device).square()
    a = normal((rows, K), dtype, device)
    arguments = {
        "a_ptr": a,
        "b_ptr": normal((groups, K, N), dtype, device),
        "offset_ptr": (share * rows // groups**2).to(torch.int32),
        "y_ptr": a.new_empty(rows, N),
    }
    return launch(kernel, shape, arguments, "PROGRAMS")
