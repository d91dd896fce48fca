"""The end of attention whose keys were split: partial results weighted by their sums."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import launch, normal


@triton.jit
def kernel(
    part_ptr,
    sum_ptr,
    length_ptr,
    out_ptr,
    rows,
    splits,
    D: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Compute ROWS rows a program; a row has as many parts as its length says."""
    r, d = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, D)
    there = r < rows
    parts = tl.load(length_ptr + r, mask=there, other=0)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, D], tl.float32)
    for i in range(tl.max(parts, 0)):
        has = there & (i < parts)
        weight = tl.load(sum_ptr + r * splits + i, mask=has, other=-1.0e30)
        at = part_ptr + (r * splits + i)[:, None] * D + d[None, :]
        part = tl.load(at, mask=has[:, None], other=0.0).to(tl.float32)
        high = tl.maximum(top, weight)
        shrink, share = tl.exp2(top - high), tl.where(has, tl.exp2(weight - high), 0.0)
        acc = acc * shrink[:, None] + part * share[:, None]
        total = total * shrink + share
        top = high
    out = acc / tl.where(total > 0, total, 1.0)[:, None]
    at = out_ptr + r[:, None] * D + d[None, :]
    tl.store(at, out.to(out_ptr.dtype.element_ty), mask=there[:, None])


DTYPES = ("fp32",)

SHAPES = ({"rows": 16384, "splits": 16, "D": 128}, {"rows": 30000, "splits": 9, "D": 64})


def space() -> Space:
    """Build the space: rows of a program, warps and stages."""
    return Space(
        {"ROWS": (1, 2, 4, 8, 16, 32, 64), "num_warps": (1, 2, 4, 8), "num_stages": (1, 2, 4)}
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch whose rows have one to all parts."""
    rows, splits, D = shape["rows"], shape["splits"], shape["D"]
    parts = torch.tensor([1 + i * 7 % splits for i in range(rows)], dtype=torch.int32)
    arguments = {
        "part_ptr": normal((rows, splits, D), dtype, device),
        "sum_ptr": normal((rows, splits), "fp32", device),
        "length_ptr": parts.to(device),
        "out_ptr": normal((rows, D), "bf16", device),
    }
    return launch(kernel, shape, arguments, (rows, "ROWS"))
