"""Sums of embeddings by bag: rows gathered through indices, as many as offsets say."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal, ragged


@triton.jit
def kernel(
    table_ptr,
    index_ptr,
    weight_ptr,
    offset_ptr,
    out_ptr,
    bags,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Process ROWS bags by BLOCK columns a program; as many steps as the longest of them."""
    bag = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(offset_ptr + bag, mask=bag < bags, other=0)
    last = tl.load(offset_ptr + bag + 1, mask=bag < bags, other=0)
    acc = tl.zeros([ROWS, BLOCK], tl.float32)
    for i in range(tl.max(last - first, 0)):
        there = first + i < last
        index = tl.load(index_ptr + first + i, mask=there, other=0).to(tl.int64)
        weight = tl.load(weight_ptr + first + i, mask=there, other=0.0)
        mask = there[:, None] & (c[None, :] < cols)
        row = tl.load(table_ptr + index[:, None] * cols + c[None, :], mask=mask, other=0.0)
        acc += weight[:, None] * row.to(tl.float32)
    mask = (bag[:, None] < bags) & (c[None, :] < cols)
    at = out_ptr + bag.to(tl.int64)[:, None] * cols + c[None, :]
    tl.store(at, acc.to(out_ptr.dtype.element_ty), mask=mask)


DTYPES = ("fp16",)

SHAPES = (
    {"bags": 8192, "mean": 30, "cols": 256, "table": 200000},
    {"bags": 60000, "mean": 6, "cols": 120, "table": 50000},
)


def space() -> Space:
    """Build the space: bags, columns, warps and stages."""
    axes = {
        "ROWS": (1, 2, 4, 8),
        "BLOCK": (32, 64, 128, 256),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1, 3),
    }
    return held(axes, 1, 32, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random indices."""
    bags, cols = shape["bags"], shape["cols"]
    offsets = ragged(bags, shape["mean"])
    total = int(offsets[-1])
    arguments = {
        "table_ptr": normal((shape["table"], cols), dtype, device),
        "index_ptr": torch.randint(0, shape["table"], (total,), device=device, dtype=torch.int32),
        "weight_ptr": normal((total,), "fp32", device),
        "offset_ptr": offsets.to(device),
        "out_ptr": normal((bags, cols), dtype, device),
    }
    return launch(kernel, shape, arguments, (bags, "ROWS"), (cols, "BLOCK"))
