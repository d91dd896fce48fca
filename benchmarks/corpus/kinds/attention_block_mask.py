"""Attention under a mask of blocks: a table lists what each block of rows sees."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal

SIDE = 128
"""Rows and columns of a block of the mask."""


@triton.jit
def kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    count_ptr,
    list_ptr,
    out_ptr,
    N,
    most,
    scale,
    D: tl.constexpr,
    SIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute BLOCK_M rows of one head a program. Walk the list of their block."""
    head, start = tl.program_id(1), tl.program_id(0) * BLOCK_M
    d = tl.arange(0, D)
    base = head.to(tl.int64) * N * D
    rows = start + tl.arange(0, BLOCK_M)
    q = tl.load(q_ptr + base + rows[:, None] * D + d[None, :], mask=rows[:, None] < N, other=0.0)
    block = start // SIDE
    count = tl.load(count_ptr + block)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for i in range(count * (SIDE // BLOCK_N)):
        seen = tl.load(list_ptr + block * most + i // (SIDE // BLOCK_N))
        cols = seen * SIDE + (i % (SIDE // BLOCK_N)) * BLOCK_N + tl.arange(0, BLOCK_N)
        inside = cols < N
        k = tl.load(k_ptr + base + cols[None, :] * D + d[:, None], mask=inside[None, :], other=0.0)
        scores = tl.where(inside[None, :], tl.dot(q, k) * scale, -1.0e30)
        high = tl.maximum(top, tl.max(scores, 1))
        p = tl.exp2(scores - high[:, None])
        shrink = tl.exp2(top - high)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + base + cols[:, None] * D + d[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        top = high
    at = out_ptr + base + rows[:, None] * D + d[None, :]
    out = (acc / total[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(at, out, mask=rows[:, None] < N)


DTYPES = ("fp16",)

SHAPES = (
    {"heads": 32, "N": 4096, "D": 64, "seen": 6},
    {"heads": 16, "N": 8000, "D": 128, "seen": 9},
)


def space() -> Space:
    """Build the space: tile, warps and stages; tiles divide the mask's blocks."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (16, 32, 64, 128),
        "num_warps": (2, 4, 8),
        "num_stages": (1, 2, 3),
    }
    return held(axes, 4, 128, "BLOCK_M", "BLOCK_N")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch; a block of rows sees one to `seen` blocks, itself among them."""
    heads, N, D, most = shape["heads"], shape["N"], shape["D"], shape["seen"]
    blocks = triton.cdiv(N, SIDE)
    counts = torch.tensor([1 + i * 5 % min(most, blocks) for i in range(blocks)])
    lists = (torch.arange(blocks)[:, None] + torch.arange(most)[None, :] * 3) % blocks
    lists = torch.where(torch.arange(most)[None, :] < counts[:, None], lists, 0)
    q, k, v = (normal((heads, N, D), dtype, device) for _ in range(3))
    arguments = {
        "q_ptr": q,
        "k_ptr": k,
        "v_ptr": v,
        "count_ptr": counts.to(torch.int32).to(device),
        "list_ptr": lists.to(torch.int32).to(device),
        "out_ptr": torch.empty_like(q),
        "most": most,
        "scale": 1.4426950408889634 / D**0.5,
        "SIDE": SIDE,
    }
    return launch(kernel, shape, arguments, (N, "BLOCK_M"), heads)
