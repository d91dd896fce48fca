"""Divergence of two rows of logits, each pass over both."""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def kernel(p_ptr, q_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    """Compute one row a program: maxima and sums of both, then the divergence."""
    row = tl.program_id(0).to(tl.int64) * cols
    c = tl.arange(0, BLOCK)
    top_p = tl.full([BLOCK], -1.0e30, tl.float32)
    top_q = tl.full([BLOCK], -1.0e30, tl.float32)
    sum_p = tl.zeros([BLOCK], tl.float32)
    sum_q = tl.zeros([BLOCK], tl.float32)
    for i in range(0, cols, BLOCK):
        p = tl.load(p_ptr + row + i + c, mask=i + c < cols, other=-1.0e30).to(tl.float32)
        q = tl.load(q_ptr + row + i + c, mask=i + c < cols, other=-1.0e30).to(tl.float32)
        high_p, high_q = tl.maximum(top_p, p), tl.maximum(top_q, q)
        sum_p = sum_p * tl.exp(top_p - high_p) + tl.exp(p - high_p)
        sum_q = sum_q * tl.exp(top_q - high_q) + tl.exp(q - high_q)
        top_p, top_q = high_p, high_q
    max_p, max_q = tl.max(top_p, 0), tl.max(top_q, 0)
    log_p = max_p + tl.log(tl.sum(sum_p * tl.exp(top_p - max_p), 0))
    log_q = max_q + tl.log(tl.sum(sum_q * tl.exp(top_q - max_q), 0))
    acc = tl.zeros([BLOCK], tl.float32)
    for i in range(0, cols, BLOCK):
        p = tl.load(p_ptr + row + i + c, mask=i + c < cols, other=-1.0e30).to(tl.float32) - log_p
        q = tl.load(q_ptr + row + i + c, mask=i + c < cols, other=-1.0e30).to(tl.float32) - log_q
        acc += tl.where(i + c < cols, tl.exp(p) * (p - q), 0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(acc, 0))


DTYPES = ("bf16",)

SHAPES = ({"rows": 4096, "cols": 32000}, {"rows": 20000, "cols": 3000})


def space() -> Space:
    """Build the space: columns at a time, warps and stages."""
    axes = {
        "BLOCK": (256, 512, 1024, 2048, 4096, 8192),
        "num_warps": (1, 2, 4, 8, 16),
        "num_stages": (1, 2, 4),
    }
    return held(axes, 1, 64, "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random logits."""
    rows, cols = shape["rows"], shape["cols"]
    arguments = {
        "p_ptr": normal((rows, cols), dtype, device),
        "q_ptr": normal((rows, cols), dtype, device),
        "out_ptr": normal((rows,), "fp32", device),
    }
    return launch(kernel, shape, arguments, rows)
