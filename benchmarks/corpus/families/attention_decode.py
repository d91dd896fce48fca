"""Decoding with grouped queries: one token against a long cache, which is split over programs.

The result is that of each split; a second kernel would merge them.
"""

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
    q_ptr,
    k_ptr,
    v_ptr,
    y_ptr,
    N,
    span,
    scale,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    PAD: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Process the GROUP queries of one head of the cache, padded to PAD, against `span` keys."""
    head = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    g, d = tl.arange(0, PAD), tl.arange(0, D)
    q = tl.load(q_ptr + (head * GROUP + g[:, None]) * D + d[None, :], g[:, None] < GROUP, other=0.0)
    top = tl.full([PAD], -1.0e30, tl.float32)
    total = tl.zeros([PAD], tl.float32)
    acc = tl.zeros([PAD, D], tl.float32)
    end = tl.minimum((split + 1) * span, N)
    for start in range(split * span, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        at = (head * N + n[:, None]) * D + d[None, :]
        k = tl.load(k_ptr + at, mask=n[:, None] < end, other=0.0)
        s = tl.where(n[None, :] < end, tl.dot(q, k.T) * scale, -1.0e30)
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + at, mask=n[:, None] < end, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        top = higher
    y = y_ptr + ((head * tl.num_programs(1) + split) * GROUP + g[:, None]) * D + d[None, :]
    tl.store(y, acc / total[:, None], mask=g[:, None] < GROUP)


DTYPES = ("bf16",)

SHAPES = (
    {"heads": 64, "group": 8, "N": 8192, "D": 128, "splits": 16},
    {"heads": 8, "group": 4, "N": 4096, "D": 128, "splits": 8},
    {"heads": 32, "group": 4, "N": 32768, "D": 64, "splits": 4},
    {"heads": 15, "group": 7, "N": 5003, "D": 128, "splits": 10},
)


def space() -> Space:
    """Build the space: keys at once, padding of the group, stages and warps."""
    axes = {
        "BLOCK_N": (16, 32, 64, 128, 256),
        "PAD": (16, 32),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1, 2, 3, 4, 5),
    }
    return (
        held(axes, 4, 128, "BLOCK_N", "D")
        .where(
            "a thread has 64 results at most",
            lambda PAD, D, num_warps: PAD * D // (num_warps * 32) <= 64,
        )
        .where(
            "the stages fit in shared memory",
            lambda BLOCK_N, D, num_stages: BLOCK_N * D * 4 * num_stages <= 200 * 1024,
        )
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random queries, keys and values; `heads` counts all heads of the cache."""
    heads, group, N, D, splits = (shape[name] for name in ("heads", "group", "N", "D", "splits"))
    q = normal((heads, group, D), dtype, device)
    k, v = (normal((heads, N, D), dtype, device) for _ in range(2))
    y = torch.empty(heads, splits, group, D, device=device)
    arguments = {"q_ptr": q, "k_ptr": k, "v_ptr": v, "y_ptr": y}
    arguments |= {"span": triton.cdiv(N, splits), "scale": D**-0.5 * 1.4426950408889634}
    return launch(kernel, shape, {**arguments, "GROUP": group}, heads, splits)
