"""A recurrence with a matrix: h = f(h W + x) by steps, f(s) = s / (1 + |s|), W held."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import launch, normal


@triton.jit
def kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    batch,
    time,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Process BLOCK sequences a program; y has the last states."""
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, WIDTH)
    w = tl.load(w_ptr + c[:, None] * WIDTH + c[None, :])
    state = tl.zeros([BLOCK, WIDTH], tl.float32)
    at = x_ptr + r[:, None].to(tl.int64) * time * WIDTH + c[None, :]
    for _ in tl.range(0, time, loop_unroll_factor=UNROLL):
        x = tl.load(at, mask=r[:, None] < batch, other=0.0).to(tl.float32)
        state = tl.dot(state.to(w.dtype), w, x)
        state = state / (1.0 + tl.abs(state))
        at += WIDTH
    tl.store(y_ptr + r[:, None] * WIDTH + c[None, :], state, mask=r[:, None] < batch)


DTYPES = ("fp16",)

SHAPES = (
    {"batch": 4096, "time": 128, "width": 128},
    {"batch": 256, "time": 256, "width": 64},
    {"batch": 1001, "time": 100, "width": 128},
)


def space() -> Space:
    """Build the space: sequences a program, unrolling, stages and warps."""
    axes = {
        "BLOCK": (16, 32, 64, 128),
        "UNROLL": (1, 2, 4),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (1, 2, 3, 4),
    }
    return Space(axes).where(
        "a thread holds 4 to 128 accumulators, all copies of the body counted",
        lambda BLOCK, UNROLL, width, num_warps: (
            BLOCK * width // (num_warps * 32) >= 4 and BLOCK * width * UNROLL <= num_warps * 4096
        ),
    )


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random inputs; the width must be a power of two."""
    batch, time, width = shape["batch"], shape["time"], shape["width"]
    kind = torch_dtype(dtype)
    x = normal((batch, time, width), dtype, device)
    w = (torch.randn(width, width, device=device) * 0.5 * width**-0.5).to(kind)
    y = torch.empty(batch, width, device=device)
    arguments = {"x_ptr": x, "w_ptr": w, "y_ptr": y}
    return launch(kernel, shape, {**arguments, "WIDTH": width}, (batch, "BLOCK"))
