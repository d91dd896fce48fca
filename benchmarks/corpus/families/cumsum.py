"""Running sums along rows: a scan of each block, and a carry from block to block."""

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
def kernel(x_ptr, y_ptr, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Compute ROWS rows a program, BLOCK columns at a time."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    carry = tl.zeros([ROWS], tl.float32)
    for i in range(0, cols, BLOCK):
        c = i + tl.arange(0, BLOCK)
        inside = (r[:, None] < rows) & (c[None, :] < cols)
        at = r[:, None].to(tl.int64) * cols + c[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=0.0)
        y = tl.cumsum(x, 1) + carry[:, None]
        tl.store(y_ptr + at, y, mask=inside)
        # Triton 3.6 aborts on `carry += tl.sum(x, 1)` where the loop reads the carry too.
        carry = tl.sum(tl.where(c[None, :] == i + BLOCK - 1, y, 0.0), 1)


DTYPES = ("fp32",)

SHAPES = (
    {"rows": 8192, "cols": 4096},
    {"rows": 64, "cols": 65536},
    {"rows": 100000, "cols": 256},
    {"rows": 2001, "cols": 3001},
)


def space() -> Space:
    """Build the space: rows, block and warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16, 32),
        "BLOCK": (64, 128, 256, 512, 1024, 2048, 4096),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 1, 32, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random rows."""
    rows, cols = shape["rows"], shape["cols"]
    x = torch.randn(rows, cols, device=device, dtype=torch_dtype(dtype))
    arguments = {"x_ptr": x, "y_ptr": torch.empty_like(x)}
    return launch(kernel, shape, arguments, (rows, "ROWS"))
