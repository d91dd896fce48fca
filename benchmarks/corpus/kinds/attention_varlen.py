"""Attention over sequences of different lengths, packed one after another."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal, ragged


@triton.jit
def kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    offset_ptr,
    out_ptr,
    H,
    scale,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute BLOCK_M rows of a head of a sequence a program; those past its end stop at once."""
    sequence, head = tl.program_id(2), tl.program_id(1)
    first = tl.load(offset_ptr + sequence)
    length = tl.load(offset_ptr + sequence + 1) - first
    start = tl.program_id(0) * BLOCK_M
    if start >= length:
        return
    rows, d = start + tl.arange(0, BLOCK_M), tl.arange(0, D)
    base = first.to(tl.int64) * H * D + head * D
    q = tl.load(
        q_ptr + base + rows[:, None] * H * D + d[None, :], mask=rows[:, None] < length, other=0.0
    )
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for at in range(0, tl.minimum(length, start + BLOCK_M), BLOCK_N):
        cols = at + tl.arange(0, BLOCK_N)
        inside = cols < length
        here = base + cols * H * D
        k = tl.load(k_ptr + here[None, :] + d[:, None], mask=inside[None, :], other=0.0)
        scores = tl.dot(q, k) * scale
        allowed = inside[None, :] & (cols[None, :] <= rows[:, None])
        scores = tl.where(allowed, scores, -1.0e30)
        high = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2(scores - high[:, None])
        shrink = tl.exp2(top - high)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + here[:, None] + d[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        top = high
    out = acc / total[:, None]
    at = out_ptr + base + rows[:, None] * H * D + d[None, :]
    tl.store(at, out.to(out_ptr.dtype.element_ty), mask=rows[:, None] < length)


DTYPES = ("bf16",)

SHAPES = (
    {"batch": 32, "mean": 512, "H": 16, "D": 64},
    {"batch": 6, "mean": 2500, "H": 8, "D": 128},
)


def space() -> Space:
    """Build the space: tile, warps and stages."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (16, 32, 64, 128),
        "num_warps": (2, 4, 8),
        "num_stages": (1, 2, 3),
    }
    return held(axes, 4, 128, "BLOCK_M", "BLOCK_N")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on a batch of sequences."""
    H, D = shape["H"], shape["D"]
    offsets = ragged(shape["batch"], shape["mean"])
    total, longest = int(offsets[-1]), int(offsets.diff().max())
    q, k, v = (normal((total, H, D), dtype, device) for _ in range(3))
    arguments = {
        "q_ptr": q,
        "k_ptr": k,
        "v_ptr": v,
        "offset_ptr": offsets.to(device),
        "out_ptr": torch.empty_like(q),
        "scale": 1.4426950408889634 / D**0.5,
    }
    return launch(kernel, shape, arguments, (longest, "BLOCK_M"), H, shape["batch"])
