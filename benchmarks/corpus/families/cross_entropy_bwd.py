"""Cross entropy backward: softmax less the target, scaled, over a 2-D grid."""

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
    lse_ptr,
    dy_ptr,
    y_ptr,
    rows,
    vocabulary,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Process BLOCK logits of ROWS rows a program; int64 targets."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (r[:, None] < rows) & (c[None, :] < vocabulary)
    at = r[:, None].to(tl.int64) * vocabulary + c[None, :]
    target = tl.load(target_ptr + r, mask=r < rows, other=0)
    lse = tl.load(lse_ptr + r, mask=r < rows, other=0.0)
    dy = tl.load(dy_ptr + r, mask=r < rows, other=0.0)
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    p = tl.exp(x - lse[:, None]) - tl.where(c[None, :] == target[:, None], 1.0, 0.0)
    tl.store(y_ptr + at, (p * dy[:, None]).to(y_ptr.dtype.element_ty), mask=inside)


DTYPES = ("bf16",)

SHAPES = (
    {"rows": 2048, "vocabulary": 32000},
    {"rows": 64, "vocabulary": 50257},
    {"rows": 60000, "vocabulary": 1000},
)


def space() -> Space:
    """Build the space: rows, logits and warps."""
    axes = {
        "ROWS": (1, 2, 4, 8),
        "BLOCK": (128, 256, 512, 1024, 2048, 4096),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 1, 64, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random logits, targets and gradients."""
    rows, vocabulary = shape["rows"], shape["vocabulary"]
    x = normal((rows, vocabulary), dtype, device)
    arguments = {
        "x_ptr": x,
        "target_ptr": torch.randint(0, vocabulary, (rows,), device=device),
        "lse_ptr": x.float().logsumexp(1),
        "dy_ptr": torch.randn(rows, device=device),
        "y_ptr": torch.empty_like(x),
    }
    return launch(kernel, shape, arguments, (rows, "ROWS"), (vocabulary, "BLOCK"))
