"""Depthwise causal convolution of four taps, with SiLU, channels last."""

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
    w_ptr,
    y_ptr,
    time,
    width,
    TAPS: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Compute BLOCK_T steps of BLOCK_C channels of one sequence a program."""
    t = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    base = tl.program_id(2).to(tl.int64) * time * width
    acc = tl.zeros([BLOCK_T, BLOCK_C], tl.float32)
    for tap in tl.static_range(TAPS):
        s = t - (TAPS - 1 - tap)
        inside = (s[:, None] >= 0) & (s[:, None] < time) & (c[None, :] < width)
        x = tl.load(x_ptr + base + s[:, None] * width + c[None, :], mask=inside, other=0.0)
        w = tl.load(w_ptr + c * TAPS + tap, mask=c < width, other=0.0)
        acc += x.to(tl.float32) * w.to(tl.float32)[None, :]
    y = (acc * tl.sigmoid(acc)).to(y_ptr.dtype.element_ty)
    inside = (t[:, None] < time) & (c[None, :] < width)
    tl.store(y_ptr + base + t[:, None] * width + c[None, :], y, mask=inside)


DTYPES = ("bf16",)

SHAPES = (
    {"batch": 8, "time": 2048, "width": 4096},
    {"batch": 1, "time": 512, "width": 1024},
    {"batch": 5, "time": 1001, "width": 1777},
)


def space() -> Space:
    """Build the space: steps, channels and warps."""
    axes = {
        "BLOCK_T": (1, 4, 16, 64, 128),
        "BLOCK_C": (32, 64, 128, 256, 512),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 1, 32, "BLOCK_T", "BLOCK_C")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random sequences and taps."""
    batch, time, width = shape["batch"], shape["time"], shape["width"]
    x = normal((batch, time, width), dtype, device)
    arguments = {"x_ptr": x, "w_ptr": normal((width, 4), dtype, device)}
    arguments |= {"y_ptr": torch.empty_like(x), "TAPS": 4}
    return launch(kernel, shape, arguments, (width, "BLOCK_C"), (time, "BLOCK_T"), batch)
