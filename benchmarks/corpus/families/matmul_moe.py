"""Mixture of experts: rows gathered by token, the expert's weights found in a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import bounded, launch, normal


@triton.jit
def kernel(
    x_ptr,
    w_ptr,
    slot_ptr,
    expert_ptr,
    y_ptr,
    slots,
    N,
    K,
    TOP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute one tile a program; an expert's slots fill blocks of 128, `slots` means none."""
    num_n = tl.cdiv(N, BLOCK_N)
    first = (tl.program_id(0) // num_n) * BLOCK_M
    slot = tl.load(slot_ptr + first + tl.arange(0, BLOCK_M))
    expert = tl.load(expert_ptr + first // 128).to(tl.int64)
    n = (tl.program_id(0) % num_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = x_ptr + (slot // TOP)[:, None] * K + k[None, :]
    b = w_ptr + expert * N * K + (n % N)[None, :] * K + k[:, None]
    there = slot[:, None] < slots
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for i in range(0, K, BLOCK_K):
        tile_a = tl.load(a, mask=there & (k[None, :] < K - i), other=0.0)
        tile_b = tl.load(b, mask=k[:, None] < K - i, other=0.0)
        acc = tl.dot(tile_a, tile_b, acc)
        a += BLOCK_K
        b += BLOCK_K
    y = y_ptr + slot[:, None] * N + n[None, :]
    tl.store(y, acc.to(y_ptr.dtype.element_ty), mask=there & (n[None, :] < N))


DTYPES = ("fp16",)

SHAPES = (
    {"tokens": 4096, "experts": 8, "N": 2048, "K": 1024},
    {"tokens": 32, "experts": 64, "N": 1024, "K": 1024},
    {"tokens": 777, "experts": 5, "N": 1500, "K": 500},
)

TOP = 2
"""Experts of a token."""


def space() -> Space:
    """Build the space: tile, stages and warps; at most 128 rows, the block of an expert."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (32, 64),
        "num_warps": (4, 8),
        "num_stages": (2, 4),
    }
    return bounded(axes, 128, 2)


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random experts for every token."""
    experts, N, K = shape["experts"], shape["N"], shape["K"]
    slots = shape["tokens"] * TOP
    padded = (triton.cdiv(slots, 128) + experts) * 128
    slot, expert = _route(slots, experts, padded, device)
    x = normal((shape["tokens"], K), dtype, device)
    arguments = {
        "x_ptr": x,
        "w_ptr": normal((experts, N, K), dtype, device),
        "slot_ptr": slot,
        "expert_ptr": expert,
        "y_ptr": x.new_empty(slots, N),
        "slots": slots,
        "TOP": TOP,
    }

    def grid(v: Mapping[str, Any]) -> tuple[int]:
        return (padded // v["BLOCK_M"] * triton.cdiv(v["N"], v["BLOCK_N"]),)

    return launch(kernel, shape, arguments, grid)


def _route(slots: int, experts: int, padded: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort slots by expert, each padded to 128; return them and the expert of every 128."""
    chosen = torch.randint(0, experts, (slots,), device=device)
    order = torch.argsort(chosen)
    counts = (chosen[:, None] == torch.arange(experts, device=device)).sum(0)
    blocks = (counts + 127) // 128 * 128
    shift = (blocks.cumsum(0) - blocks) - (counts.cumsum(0) - counts)
    at = torch.arange(slots, device=device) + shift[chosen[order]]
    slot = torch.full((padded,), slots, device=device, dtype=torch.int32)
    slot[at] = order.to(torch.int32)
    starts = torch.arange(0, padded, 128, device=device)
    expert = (starts[:, None] >= blocks.cumsum(0)).sum(1).clamp(max=experts - 1)
    return slot, expert.to(torch.int32)
