"""GroupNorm of images: the sums of a group of channels in one loop, then a loop that writes."""

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
    b_ptr,
    y_ptr,
    groups,
    channels,
    pixels,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute one group of one image a program; `channels` is those of a group."""
    size = channels * pixels
    start = tl.program_id(0).to(tl.int64) * size
    first = (tl.program_id(0) % groups) * channels
    total = tl.zeros([BLOCK], tl.float32)
    squares = tl.zeros([BLOCK], tl.float32)
    for i in tl.range(0, size, BLOCK, num_stages=STAGES):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + c, mask=c < size, other=0.0).to(tl.float32)
        total += x
        squares += x * x
    mean = tl.sum(total, 0) / size
    rstd = tl.rsqrt(tl.sum(squares, 0) / size - mean * mean + 1e-5)
    for i in tl.range(0, size, BLOCK, num_stages=STAGES):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + c, mask=c < size, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + first + c // pixels, mask=c < size, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + first + c // pixels, mask=c < size, other=0.0).to(tl.float32)
        y = (x - mean) * rstd * w + b
        tl.store(y_ptr + start + c, y.to(y_ptr.dtype.element_ty), mask=c < size)


DTYPES = ("fp16",)

SHAPES = (
    {"batch": 16, "groups": 32, "channels": 10, "pixels": 4096},
    {"batch": 1, "groups": 32, "channels": 16, "pixels": 1024},
    {"batch": 9, "groups": 8, "channels": 7, "pixels": 3025},
)


def space() -> Space:
    """Build the space: block, stages of the loops and warps."""
    axes = {
        "BLOCK": (256, 512, 1024, 2048, 4096, 8192),
        "STAGES": (1, 2, 4),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 1, 32, "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random images, weights and biases."""
    batch, groups, channels, pixels = (
        shape[name] for name in ("batch", "groups", "channels", "pixels")
    )
    x = normal((batch, groups * channels, pixels), dtype, device)
    w, b = (normal((groups * channels,), dtype, device) for _ in range(2))
    arguments = {"x_ptr": x, "w_ptr": w, "b_ptr": b, "y_ptr": torch.empty_like(x)}
    return launch(kernel, shape, arguments, batch * groups)
