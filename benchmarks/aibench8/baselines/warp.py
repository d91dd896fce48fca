"""Horizontal warp: a row of a channel a program, 128 columns at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.problem import Problem

CONFIGS = (Config({"BLOCK_W": 128}),)

OUTPUTS = ("y_ptr",)


@triton.jit
def kernel(x_ptr, offset_ptr, y_ptr, height, width, BLOCK_W: tl.constexpr):
    """Compute one row a program: two pixels for each, mixed by the fraction of their offset."""
    row, channel = tl.program_id(0), tl.program_id(1)
    place = channel * height * width + row * width
    for start in range(0, width, BLOCK_W):
        col = start + tl.arange(0, BLOCK_W)
        mask = col < width
        offset = tl.load(offset_ptr + row * width + col, mask=mask, other=0).to(tl.int32)
        right = col - (offset >> 8)
        left, fraction = right - 1, offset & 0xFF
        right_there = mask & (right >= 0) & (right < width)
        left_there = mask & (left >= 0) & (left < width)
        a = tl.load(x_ptr + place + right, mask=right_there, other=0).to(tl.int32)
        b = tl.load(x_ptr + place + left, mask=left_there, other=0).to(tl.int32)
        mixed = ((a << 8) + (b - a) * fraction) >> 8
        tl.store(y_ptr + place + col, mixed.to(tl.int8), mask=mask)


def problem(inputs: Mapping[str, Any]) -> Problem:
    """Make one launch."""
    x, offset = inputs["x"], inputs["offset"]
    channels, height, width = x.shape
    tensors = {"x_ptr": x, "offset_ptr": offset, "y_ptr": torch.empty_like(x)}
    return Problem(
        kernel,
        {**tensors, "height": height, "width": width},
        (height, channels),
        name="untuned warp",
    )
