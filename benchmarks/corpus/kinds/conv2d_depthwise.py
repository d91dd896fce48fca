"""A convolution of each channel by itself, channels last."""

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
    out_ptr,
    height,
    width,
    C,
    TAPS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Process ROWS places of an image by BLOCK channels a program."""
    image = tl.program_id(2).to(tl.int64)
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    y, x = place // width, place % width
    acc = tl.zeros([ROWS, BLOCK], tl.float32)
    for i in tl.static_range(TAPS):
        for j in tl.static_range(TAPS):
            from_y, from_x = y + i - TAPS // 2, x + j - TAPS // 2
            inside = (from_y >= 0) & (from_y < height) & (from_x >= 0) & (from_x < width)
            mask = inside[:, None] & (c[None, :] < C)
            at = (image * height * width + from_y * width + from_x)[:, None] * C + c[None, :]
            value = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
            weight = tl.load(w_ptr + (i * TAPS + j) * C + c, mask=c < C, other=0.0).to(tl.float32)
            acc += value * weight[None, :]
    mask = (place[:, None] < height * width) & (c[None, :] < C)
    at = (image * height * width + place)[:, None] * C + c[None, :]
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=mask)


DTYPES = ("fp16",)

SHAPES = (
    {"batch": 32, "height": 56, "width": 56, "C": 256, "TAPS": 3},
    {"batch": 16, "height": 30, "width": 30, "C": 500, "TAPS": 5},
)


def space() -> Space:
    """Build the space: places, channels, warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16, 32, 64),
        "BLOCK": (16, 32, 64, 128, 256),
        "num_warps": (1, 2, 4, 8),
    }
    return held(axes, 1, 32, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random images."""
    batch, height, width, C, TAPS = shape.values()
    x = normal((batch, height, width, C), dtype, device)
    arguments = {
        "x_ptr": x,
        "w_ptr": normal((TAPS, TAPS, C), dtype, device),
        "out_ptr": torch.empty_like(x),
    }
    return launch(kernel, shape, arguments, (height * width, "ROWS"), (C, "BLOCK"), batch)
