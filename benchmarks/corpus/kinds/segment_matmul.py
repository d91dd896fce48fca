"""Segments of rows, each by its own matrix; blocks past a segment's end stop at once."""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal, ragged


@triton.jit
def kernel(
    x_ptr,
    w_ptr,
    offset_ptr,
    y_ptr,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile of one segment a program."""
    segment = tl.program_id(2)
    first, last = tl.load(offset_ptr + segment), tl.load(offset_ptr + segment + 1)
    start = first + tl.program_id(0) * BLOCK_M
    if start >= last:
        return
    rows = start + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, K, BLOCK_K):
        here = (rows[:, None] < last) & (i + k[None, :] < K)
        a = tl.load(x_ptr + rows[:, None] * K + i + k[None, :], mask=here, other=0.0)
        there = (i + k[:, None] < K) & (cols[None, :] < N)
        b = w_ptr + segment.to(tl.int64) * K * N + (i + k)[:, None] * N + cols[None, :]
        acc = tl.dot(a, tl.load(b, mask=there, other=0.0), acc)
    mask = (rows[:, None] < last) & (cols[None, :] < N)
    at = y_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(at, acc.to(y_ptr.dtype.element_ty), mask=mask)


DTYPES = ("fp16",)

SHAPES = (
    {"segments": 24, "mean": 700, "N": 512, "K": 512},
    {"segments": 200, "mean": 40, "N": 256, "K": 300},
)


def space() -> Space:
    """Build the space: tile, warps and stages."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (32, 64),
        "num_warps": (2, 4, 8),
        "num_stages": (2, 4),
    }
    return held(axes, 4, 128, "BLOCK_M", "BLOCK_N")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch with room for the longest segment."""
    segments, N, K = shape["segments"], shape["N"], shape["K"]
    offsets = ragged(segments, shape["mean"])
    longest = int(offsets.diff().max())
    arguments = {
        "x_ptr": normal((int(offsets[-1]), K), dtype, device),
        "w_ptr": normal((segments, K, N), dtype, device),
        "offset_ptr": offsets.to(device),
        "y_ptr": normal((int(offsets[-1]), N), dtype, device),
    }
    return launch(kernel, shape, arguments, (longest, "BLOCK_M"), (N, "BLOCK_N"), segments)
