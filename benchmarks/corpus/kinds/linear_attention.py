"""Linear attention: chunks in turn, with a state of keys by values that is carried on."""

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
    out_ptr,
    time,
    V,
    K: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Compute BLOCK_V values of one head a program, BLOCK_T steps at a time."""
    head = tl.program_id(1).to(tl.int64)
    k_at = tl.arange(0, K)
    cols = tl.program_id(0) * BLOCK_V + tl.arange(0, BLOCK_V)
    state = tl.zeros([K, BLOCK_V], tl.float32)
    steps = tl.arange(0, BLOCK_T)
    for first in range(0, time, BLOCK_T):
        t = first + steps
        inside = t < time
        row = head * time + t
        q = tl.load(q_ptr + row[:, None] * K + k_at[None, :], mask=inside[:, None], other=0.0)
        k = tl.load(k_ptr + row[None, :] * K + k_at[:, None], mask=inside[None, :], other=0.0)
        there = inside[:, None] & (cols[None, :] < V)
        v = tl.load(v_ptr + row[:, None] * V + cols[None, :], mask=there, other=0.0)
        scores = tl.where(steps[:, None] >= steps[None, :], tl.dot(q, k), 0.0)
        out = tl.dot(q, state.to(q.dtype)) + tl.dot(scores.to(v.dtype), v)
        state = tl.dot(k, v, state)
        tl.store(
            out_ptr + row[:, None] * V + cols[None, :], out.to(out_ptr.dtype.element_ty), mask=there
        )


DTYPES = ("bf16",)

SHAPES = (
    {"heads": 64, "time": 2048, "K": 128, "V": 128},
    {"heads": 32, "time": 3000, "K": 64, "V": 256},
)


def space() -> Space:
    """Build the space: steps, values, warps and stages."""
    axes = {
        "BLOCK_T": (16, 32, 64, 128),
        "BLOCK_V": (16, 32, 64, 128),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1, 2, 3),
    }
    return held(axes, 4, 128, "BLOCK_T", "BLOCK_V")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on small random keys, so that states stay in range."""
    heads, time, K, V = (shape[name] for name in ("heads", "time", "K", "V"))
    v = normal((heads, time, V), dtype, device)
    arguments = {
        "q_ptr": normal((heads, time, K), dtype, device) * K**-0.5,
        "k_ptr": normal((heads, time, K), dtype, device) * K**-0.5,
        "v_ptr": v,
        "out_ptr": torch.empty_like(v),
    }
    return launch(kernel, shape, arguments, (V, "BLOCK_V"), heads)
