"""4-bit weights to fp16: two a byte, a scale and a zero for 128 of a row."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def kernel(
    w_ptr,
    scale_ptr,
    zero_ptr,
    y_ptr,
    rows,
    cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    JOIN: tl.constexpr,
):
    """Process ROWS rows of BLOCK bytes a program; JOIN interleaves before it stores."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (r[:, None] < rows) & (c[None, :] < cols // 2)
    at = r[:, None] * (cols // 2) + c[None, :]
    group = r[:, None] * (cols // 128) + c[None, :] // 64
    w = tl.load(w_ptr + at, mask=inside, other=0)
    scale = tl.load(scale_ptr + group, mask=inside, other=0.0)
    zero = tl.load(zero_ptr + group, mask=inside, other=0.0)
    low = (w & 15).to(scale.dtype) * scale + zero
    high = (w >> 4).to(scale.dtype) * scale + zero
    if JOIN:
        both = tl.reshape(tl.join(low, high), [ROWS, 2 * BLOCK])
        d = tl.program_id(1) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
        there = (r[:, None] < rows) & (d[None, :] < cols)
        tl.store(y_ptr + r[:, None] * cols + d[None, :], both, mask=there)
    else:
        tl.store(y_ptr + 2 * at, low, mask=inside)
        tl.store(y_ptr + 2 * at + 1, high, mask=inside)


DTYPES = ("fp16",)

SHAPES = (
    {"rows": 8192, "cols": 8192},
    {"rows": 256, "cols": 1024},
    {"rows": 3001, "cols": 4480},
)


def space() -> Space:
    """Build the space: rows, bytes, how to store, and warps."""
    axes = {
        "ROWS": (1, 4, 8),
        "BLOCK": (64, 128, 256, 512),
        "JOIN": (False, True),
        "num_warps": (1, 2, 4, 8),
    }
    return held(axes, 1, 32, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random bytes, scales and zeros."""
    rows, cols = shape["rows"], shape["cols"]
    kind = torch_dtype(dtype)
    scale, zero = (normal((rows, cols // 128), dtype, device) for _ in range(2))
    arguments = {
        "w_ptr": torch.randint(0, 256, (rows, cols // 2), device=device, dtype=torch.uint8),
        "scale_ptr": scale,
        "zero_ptr": zero,
        "y_ptr": torch.empty(rows, cols, device=device, dtype=kind),
    }
    return launch(kernel, shape, arguments, (rows, "ROWS"), (cols // 2, "BLOCK"))
