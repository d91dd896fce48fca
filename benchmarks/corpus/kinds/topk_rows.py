"""The largest elements of each row, one after another."""

from __future__ import annotations

from collections.abc import Mapping

import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import launch, normal


@triton.jit
def kernel(x_ptr, out_ptr, rows, cols, TOP: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Compute ROWS rows a program, whole; TOP times the maximum, which is taken out."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, WIDTH)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    at = x_ptr + r.to(tl.int64)[:, None] * cols + c[None, :]
    x = tl.load(at, mask=mask, other=float("-inf")).to(tl.float32)
    for i in range(TOP):
        value, place = tl.max(x, 1, return_indices=True)
        out = value.to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + r * TOP + i, out, mask=r < rows)
        x = tl.where(c[None, :] == place[:, None], float("-inf"), x)


DTYPES = ("fp32",)

SHAPES = (
    {"rows": 16384, "cols": 256, "TOP": 8},
    {"rows": 4000, "cols": 2000, "TOP": 4},
    {"rows": 60000, "cols": 60, "TOP": 2},
)


def space() -> Space:
    """Build the space: rows, warps."""
    return Space(
        {"ROWS": (1, 2, 4, 8, 16, 32, 64), "num_warps": (1, 2, 4, 8), "num_stages": (1, 3)},
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random rows."""
    rows, cols, TOP = shape["rows"], shape["cols"], shape["TOP"]
    arguments = {
        "x_ptr": normal((rows, cols), dtype, device),
        "out_ptr": normal((rows, TOP), dtype, device),
        "WIDTH": triton.next_power_of_2(cols),
    }
    return launch(kernel, shape, arguments, (rows, "ROWS"))
