"""Outputs of a state-space model by chunk: the state before it, and a masked, decayed product."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def kernel(
    c_ptr,
    b_ptr,
    x_ptr,
    state_ptr,
    decay_ptr,
    out_ptr,
    H,
    P,
    N: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute BLOCK_M steps by BLOCK_N channels of one head and chunk a program."""
    chunk, head = tl.program_id(1), tl.program_id(2)
    across = tl.cdiv(P, BLOCK_N)
    start = (tl.program_id(0) // across) * BLOCK_M
    rows = start + tl.arange(0, BLOCK_M)
    p = (tl.program_id(0) % across) * BLOCK_N + tl.arange(0, BLOCK_N)
    n = tl.arange(0, N)
    first = chunk.to(tl.int64) * CHUNK
    decay = tl.load(decay_ptr + (first + rows) * H + head)
    c = tl.load(c_ptr + (first + rows)[:, None] * N + n[None, :])
    at = state_ptr + ((chunk.to(tl.int64) * H + head) * P + p[None, :]) * N + n[:, None]
    state = tl.load(at, mask=p[None, :] < P, other=0.0)
    acc = tl.dot(c, state.to(c.dtype)) * tl.exp2(decay)[:, None]
    for s in range(0, start + BLOCK_M, BLOCK_K):
        cols = s + tl.arange(0, BLOCK_K)
        b = tl.load(b_ptr + (first + cols)[None, :] * N + n[:, None])
        before = tl.load(decay_ptr + (first + cols) * H + head)
        weight = tl.exp2(decay[:, None] - before[None, :])
        scores = tl.where(rows[:, None] >= cols[None, :], tl.dot(c, b) * weight, 0.0)
        here = x_ptr + ((first + cols) * H + head)[:, None] * P + p[None, :]
        x = tl.load(here, mask=p[None, :] < P, other=0.0)
        acc = tl.dot(scores.to(x.dtype), x, acc)
    here = out_ptr + ((first + rows) * H + head)[:, None] * P + p[None, :]
    tl.store(here, acc.to(out_ptr.dtype.element_ty), mask=p[None, :] < P)


DTYPES = ("bf16",)

SHAPES = (
    {"chunks": 64, "CHUNK": 256, "H": 32, "P": 64, "N": 128},
    {"chunks": 40, "CHUNK": 128, "H": 24, "P": 128, "N": 64},
)


def space() -> Space:
    """Build the space: tile, warps and stages."""
    axes = {
        "BLOCK_M": (32, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (32, 64),
        "num_warps": (2, 4, 8),
        "num_stages": (1, 2, 3),
    }
    return held(axes, 4, 128, "BLOCK_M", "BLOCK_N")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch; decays are cumulative logarithms, falling along each chunk."""
    chunks, CHUNK, H, P, N = (shape[name] for name in ("chunks", "CHUNK", "H", "P", "N"))
    steps = -torch.rand(chunks, CHUNK, H, device=device) * 0.1
    x = normal((chunks * CHUNK, H, P), dtype, device)
    arguments = {
        "c_ptr": normal((chunks * CHUNK, N), dtype, device),
        "b_ptr": normal((chunks * CHUNK, N), dtype, device),
        "x_ptr": x,
        "state_ptr": normal((chunks, H, P, N), "fp32", device),
        "decay_ptr": steps.cumsum(1).reshape(-1, H).contiguous(),
        "out_ptr": torch.empty_like(x),
    }

    def grid(v: Mapping[str, Any]) -> tuple[int, int, int]:
        return triton.cdiv(CHUNK, v["BLOCK_M"]) * triton.cdiv(P, v["BLOCK_N"]), chunks, H

    return launch(kernel, shape, arguments, grid)
