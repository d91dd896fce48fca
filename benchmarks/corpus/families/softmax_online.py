"""Softmax of rows longer than a block: one loop for maximum and sum, one that writes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch


@triton.jit
def kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Compute one row a program; each lane keeps a maximum and a sum of its own."""
    start = tl.program_id(0).to(tl.int64) * cols
    top = tl.full([BLOCK], -1.0e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for i in tl.range(0, cols, BLOCK, num_stages=STAGES):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + c, mask=c < cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, x)
        total = total * tl.exp(top - higher) + tl.exp(x - higher)
        top = higher
    highest = tl.max(top, 0)
    scale = 1.0 / tl.sum(total * tl.exp(top - highest), 0)
    for i in tl.range(0, cols, BLOCK, num_stages=STAGES):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + c, mask=c < cols, eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(x - highest) * scale
        tl.store(y_ptr + start + c, y.to(y_ptr.dtype.element_ty), mask=c < cols)


DTYPES = ("fp32",)

SHAPES = (
    {"rows": 1024, "cols": 65536},
    {"rows": 24, "cols": 131072},
    {"rows": 8192, "cols": 4096},
    {"rows": 501, "cols": 100003},
)


def space() -> Space:
    """Build the space: block, stages of the loops and warps."""
    axes = {
        "BLOCK": (128, 256, 512, 1024, 2048, 4096, 8192, 16384),
        "STAGES": (1, 2, 3, 4),
        "num_warps": (1, 2, 4, 8, 16, 32),
    }
    return held(axes, 1, 32, "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random rows."""
    rows, cols = shape["rows"], shape["cols"]
    x = torch.randn(rows, cols, device=device, dtype=torch_dtype(dtype))
    arguments = {"x_ptr": x, "y_ptr": torch.empty_like(x)}
    return launch(kernel, shape, arguments, rows)
