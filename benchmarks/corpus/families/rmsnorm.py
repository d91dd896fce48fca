"""RMSNorm forward: a program walks STEPS blocks of ROWS whole rows; the weight is loaded once."""

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
    w_ptr,
    y_ptr,
    rows,
    cols,
    eps,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    STEPS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute STEPS x ROWS rows a program."""
    c = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + c, mask=c < cols, other=0.0).to(tl.float32)
    first = tl.program_id(0) * ROWS * STEPS
    for step in tl.range(0, STEPS, num_stages=STAGES):
        r = first + step * ROWS + tl.arange(0, ROWS)
        inside = (r[:, None] < rows) & (c[None, :] < cols)
        at = r[:, None].to(tl.int64) * cols + c[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x, 1) / cols + eps)
        y = x * scale[:, None] * w[None, :]
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


DTYPES = ("bf16",)

SHAPES = (
    {"rows": 8192, "cols": 4096},
    {"rows": 40000, "cols": 512},
    {"rows": 96, "cols": 8192},
    {"rows": 5001, "cols": 1003},
)


def space() -> Space:
    """Build the space: rows a program, at once and in turn, stages of that loop, and warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16),
        "STEPS": (1, 4, 16),
        "STAGES": (1, 2, 3),
        "num_warps": (1, 2, 4, 8, 16, 32),
    }
    return (
        Space(axes)
        .where("one step has no stages", lambda STEPS, STAGES: STEPS > 1 or STAGES == 1)
        .where(
            "a thread holds 1 to 64 elements",
            lambda ROWS, cols, num_warps: (
                1 <= ROWS * triton.next_power_of_2(cols) // (num_warps * 32) <= 64
            ),
        )
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random rows."""
    rows, cols = shape["rows"], shape["cols"]
    x = normal((rows, cols), dtype, device)
    w = normal((cols,), dtype, device)
    arguments = {"x_ptr": x, "w_ptr": w, "y_ptr": torch.empty_like(x)}
    arguments |= {"eps": 1e-6, "BLOCK": triton.next_power_of_2(cols)}
    return launch(kernel, shape, arguments, (rows, "ROWS", "STEPS"))
