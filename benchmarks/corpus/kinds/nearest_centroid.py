"""The nearest of many centres: products, distances and a running minimum."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def kernel(
    x_ptr,
    centre_ptr,
    out_ptr,
    rows,
    centres,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Process BLOCK_M points a program, all centres in turn; return the index of the nearest."""
    r, k = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, K)
    x = tl.load(x_ptr + r[:, None] * K + k[None, :], mask=r[:, None] < rows, other=0.0)
    best = tl.full([BLOCK_M], 1.0e30, tl.float32)
    place = tl.zeros([BLOCK_M], tl.int32)
    for at in range(0, centres, BLOCK_N):
        n = at + tl.arange(0, BLOCK_N)
        there = n[None, :] < centres
        c = tl.load(centre_ptr + n[None, :] * K + k[:, None], mask=there, other=0.0)
        wide = c.to(tl.float32)
        distance = tl.sum(wide * wide, 0)[None, :] - 2 * tl.dot(x, c)
        distance = tl.where(there, distance, 1.0e30)
        low, first = tl.min(distance, 1, return_indices=True)
        place = tl.where(low < best, at + first, place)
        best = tl.minimum(best, low)
    tl.store(out_ptr + r, place, mask=r < rows)


DTYPES = ("fp16",)

SHAPES = (
    {"rows": 65536, "centres": 1024, "K": 64},
    {"rows": 10000, "centres": 3000, "K": 128},
)


def space() -> Space:
    """Build the space: tile, warps and stages."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (16, 32, 64, 128),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1, 2, 3),
    }
    return held(axes, 4, 128, "BLOCK_M", "BLOCK_N")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random points and centres."""
    arguments = {
        "x_ptr": normal((shape["rows"], shape["K"]), dtype, device),
        "centre_ptr": normal((shape["centres"], shape["K"]), dtype, device),
        "out_ptr": torch.zeros(shape["rows"], device=device, dtype=torch.int32),
    }
    return launch(kernel, shape, arguments, ("rows", "BLOCK_M"))
