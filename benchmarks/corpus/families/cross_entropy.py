"""Cross entropy: an online log-sum-exp over the vocabulary, and the target's logit gathered."""

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
    x_ptr,
    target_ptr,
    y_ptr,
    rows,
    vocabulary,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute ROWS rows a program, in blocks of BLOCK logits."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = r.to(tl.int64) * vocabulary
    target = tl.load(target_ptr + r, mask=r < rows, other=0)
    chosen = tl.load(x_ptr + start + target, mask=r < rows, other=0.0).to(tl.float32)
    top = tl.full([ROWS], -1.0e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for i in tl.range(0, vocabulary, BLOCK, num_stages=STAGES):
        c = i + tl.arange(0, BLOCK)
        inside = (r[:, None] < rows) & (c[None, :] < vocabulary)
        x = tl.load(x_ptr + start[:, None] + c[None, :], mask=inside, other=-1.0e30)
        x = x.to(tl.float32)
        higher = tl.maximum(top, tl.max(x, 1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher[:, None]), 1)
        top = higher
    tl.store(y_ptr + r, top + tl.log(total) - chosen, mask=r < rows)


DTYPES = ("fp32", "bf16")

SHAPES = (
    {"rows": 2048, "vocabulary": 50257},
    {"rows": 64, "vocabulary": 128256},
    {"rows": 8192, "vocabulary": 4096},
    {"rows": 1000, "vocabulary": 32000},
)


def space() -> Space:
    """Build the space: rows, block, stages and warps."""
    axes = {
        "ROWS": (1, 2, 4),
        "BLOCK": (512, 1024, 2048, 4096, 8192),
        "STAGES": (1, 2, 3),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 2, 32, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random logits and targets."""
    rows, vocabulary = shape["rows"], shape["vocabulary"]
    arguments = {
        "x_ptr": normal((rows, vocabulary), dtype, device),
        "target_ptr": torch.randint(0, vocabulary, (rows,), device=device),
        "y_ptr": torch.empty(rows, device=device),
    }
    return launch(kernel, shape, arguments, (rows, "ROWS"))
