"""The logarithm of the sum over a vocabulary of a product that is never stored."""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def kernel(
    x_ptr,
    w_ptr,
    out_ptr,
    rows,
    words,
    K,
    SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute BLOCK_M rows by one part of the vocabulary a program."""
    r = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.arange(0, BLOCK_K)
    share = tl.cdiv(words, SPLITS)
    first = tl.program_id(1) * share
    last = tl.minimum(first + share, words)
    top = tl.full([BLOCK_M], -1.0e30, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    for at in range(first, last, BLOCK_N):
        n = at + tl.arange(0, BLOCK_N)
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for i in range(0, K, BLOCK_K):
            here = (r[:, None] < rows) & (i + k[None, :] < K)
            x = tl.load(x_ptr + r[:, None] * K + i + k[None, :], mask=here, other=0.0)
            there = (n[None, :] < last) & (i + k[:, None] < K)
            w = w_ptr + n.to(tl.int64)[None, :] * K + i + k[:, None]
            acc = tl.dot(x, tl.load(w, mask=there, other=0.0), acc)
        acc = tl.where(n[None, :] < last, acc, -1.0e30)
        high = tl.maximum(top, tl.max(acc, 1))
        total = total * tl.exp(top - high) + tl.sum(tl.exp(acc - high[:, None]), 1)
        top = high
    tl.store(out_ptr + r * SPLITS + tl.program_id(1), top + tl.log(total), mask=r < rows)


DTYPES = ("bf16",)

SHAPES = (
    {"rows": 1024, "words": 16000, "K": 1024, "SPLITS": 16},
    {"rows": 3000, "words": 5000, "K": 512, "SPLITS": 4},
)


def space() -> Space:
    """Build the space: tile, warps and stages."""
    axes = {
        "BLOCK_M": (32, 64, 128),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (32, 64),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    }
    return held(axes, 4, 128, "BLOCK_M", "BLOCK_N")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on small random weights."""
    rows, words, K, SPLITS = (shape[name] for name in ("rows", "words", "K", "SPLITS"))
    arguments = {
        "x_ptr": normal((rows, K), dtype, device),
        "w_ptr": normal((words, K), dtype, device) * K**-0.5,
        "out_ptr": normal((rows, SPLITS), "fp32", device),
    }
    return launch(kernel, shape, arguments, (rows, "BLOCK_M"), SPLITS)
