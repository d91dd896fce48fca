"""Walsh-Hadamard transform of rows in registers: halves added, subtracted and interleaved."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import launch, normal


@triton.jit
def kernel(
    x_ptr,
    y_ptr,
    rows,
    cols,
    LEVELS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Compute ROWS rows of 2 ** LEVELS elements a program; the two halves meet at every level."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, 1 << LEVELS)
    at = r[:, None] * cols + c[None, :]
    x = tl.load(x_ptr + at, mask=r[:, None] < rows, other=0.0).to(tl.float32)
    for _ in tl.static_range(LEVELS):
        halves = tl.permute(tl.reshape(x, [ROWS, 2, 1 << (LEVELS - 1)]), (0, 2, 1))
        low, high = tl.split(halves)
        x = tl.reshape(tl.join(low + high, low - high), [ROWS, 1 << LEVELS])
    tl.store(y_ptr + at, x.to(y_ptr.dtype.element_ty), mask=r[:, None] < rows)


DTYPES = ("fp16",)

SHAPES = (
    {"rows": 65536, "levels": 8},
    {"rows": 500, "levels": 10},
    {"rows": 100001, "levels": 6},
)


def space() -> Space:
    """Build the space: rows, warps and a cap on registers."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16, 32, 64, 128),
        "num_warps": (1, 2, 4, 8, 16),
        "maxnreg": (None, 32, 64, 128),
    }
    return Space(axes).where(
        "a thread holds 1 to 64 elements",
        lambda ROWS, levels, num_warps: 1 <= ROWS * 2**levels // (num_warps * 32) <= 64,
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random rows."""
    rows, cols = shape["rows"], 2 ** shape["levels"]
    x = normal((rows, cols), dtype, device)
    arguments = {"x_ptr": x, "y_ptr": torch.empty_like(x), "cols": cols}
    return launch(kernel, shape, arguments | {"LEVELS": shape["levels"]}, (rows, "ROWS"))
