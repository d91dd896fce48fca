"""States of a state-space model by chunk: a product of inputs, decayed to the chunk's end."""

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
    x_ptr,
    b_ptr,
    decay_ptr,
    out_ptr,
    H,
    P,
    N,
    CHUNK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute a tile of one head's (P, N) state of one chunk a program."""
    chunk, head = tl.program_id(1), tl.program_id(2)
    across = tl.cdiv(N, BLOCK_N)
    p = (tl.program_id(0) // across) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) % across) * BLOCK_N + tl.arange(0, BLOCK_N)
    steps = tl.arange(0, BLOCK_K)
    first = chunk.to(tl.int64) * CHUNK
    last = tl.load(decay_ptr + (first + CHUNK - 1) * H + head)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for at in range(0, CHUNK, BLOCK_K):
        t = first + at + steps
        decay = tl.exp2(last - tl.load(decay_ptr + t * H + head))
        x = tl.load(
            x_ptr + (t * H + head)[None, :] * P + p[:, None], mask=p[:, None] < P, other=0.0
        )
        b = tl.load(b_ptr + t[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
        scaled = (b.to(tl.float32) * decay[:, None]).to(b.dtype)
        acc = tl.dot(x, scaled, acc)
    at = out_ptr + ((chunk.to(tl.int64) * H + head) * P + p[:, None]) * N + n[None, :]
    tl.store(at, acc.to(out_ptr.dtype.element_ty), mask=(p[:, None] < P) & (n[None, :] < N))


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
        "BLOCK_K": (16, 32, 64),
        "num_warps": (2, 4, 8),
        "num_stages": (2, 3),
    }
    return held(axes, 4, 128, "BLOCK_M", "BLOCK_N")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch; decays are cumulative logarithms, falling along each chunk."""
    chunks, CHUNK, H, P, N = (shape[name] for name in ("chunks", "CHUNK", "H", "P", "N"))
    steps = -torch.rand(chunks, CHUNK, H, device=device) * 0.1
    arguments = {
        "x_ptr": normal((chunks * CHUNK, H, P), dtype, device),
        "b_ptr": normal((chunks * CHUNK, N), dtype, device),
        "decay_ptr": steps.cumsum(1).reshape(-1, H).contiguous(),
        "out_ptr": normal((chunks, H, P, N), "fp32", device),
    }

    def grid(v: Mapping[str, Any]) -> tuple[int, int, int]:
        return triton.cdiv(P, v["BLOCK_M"]) * triton.cdiv(N, v["BLOCK_N"]), chunks, H

    return launch(kernel, shape, arguments, grid)
