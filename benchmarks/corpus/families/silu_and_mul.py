"""silu(gate) * up from rows that hold both: element-wise, a 1-D grid, unrolled by STEPS."""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import launch, normal


@triton.jit
def kernel(x_ptr, y_ptr, total, cols, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    """Process STEPS blocks of BLOCK elements a program."""
    for step in tl.static_range(STEPS):
        i = (tl.program_id(0) * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        row = i // cols
        at = x_ptr + row * (2 * cols) + (i - row * cols)
        gate = tl.load(at, mask=i < total, other=0.0).to(tl.float32)
        up = tl.load(at + cols, mask=i < total, other=0.0).to(tl.float32)
        y = gate * tl.sigmoid(gate) * up
        tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=i < total)


DTYPES = ("bf16",)

SHAPES = (
    {"rows": 4096, "cols": 11008},
    {"rows": 16, "cols": 14336},
    {"rows": 2048, "cols": 4096},
    {"rows": 3001, "cols": 1003},
)


def space() -> Space:
    """Build the space: block, blocks a program and warps."""
    axes = {
        "BLOCK": (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
        "STEPS": (1, 2, 4, 8),
        "num_warps": (1, 2, 4, 8, 16, 32),
    }
    return Space(axes).where(
        "a thread has 1 to 64 elements in all",
        lambda BLOCK, STEPS, num_warps: (
            num_warps * 32 <= BLOCK and BLOCK * STEPS // (num_warps * 32) <= 64
        ),
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random rows."""
    rows, cols = shape["rows"], shape["cols"]
    x = normal((rows, 2 * cols), dtype, device)
    y = x.new_empty(rows, cols)
    arguments = {"x_ptr": x, "y_ptr": y, "total": rows * cols}
    return launch(kernel, shape, arguments, ("total", "BLOCK", "STEPS"))
