"""Bilinear upsampling by two: an output row a program, 128 columns at a time."""

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
def kernel(x_ptr, y_ptr, height, width, BLOCK_W: tl.constexpr):
    """Compute one row of the result a program: four pixels for each, in fixed point."""
    out_row, channel = tl.program_id(0), tl.program_id(1)
    place = out_row << 6
    row, down = place >> 7, place & 127
    above = x_ptr + channel * height * width + row * width
    below = x_ptr + channel * height * width + tl.minimum(row + 1, height - 1) * width
    y_ptr += channel * height * width * 4 + out_row * width * 2
    for start in range(0, 2 * width, BLOCK_W):
        out_col = start + tl.arange(0, BLOCK_W)
        mask = out_col < 2 * width
        left, across = (out_col << 6) >> 7, (out_col << 6) & 127
        right = tl.minimum(left + 1, width - 1)
        a = tl.load(above + left, mask=mask, other=0).to(tl.int16)
        b = tl.load(above + right, mask=mask, other=0).to(tl.int16)
        c = tl.load(below + left, mask=mask, other=0).to(tl.int16)
        d = tl.load(below + right, mask=mask, other=0).to(tl.int16)
        upper = (a * (128 - across) + b * across) >> 7
        lower = (c * (128 - across) + d * across) >> 7
        mixed = (upper * (128 - down) + lower * down) >> 7
        tl.store(y_ptr + out_col, mixed.to(tl.int8), mask=mask)


def problem(inputs: Mapping[str, Any]) -> Problem:
    """Make one launch."""
    x = inputs["x"]
    channels, height, width = x.shape
    y = torch.empty((channels, 2 * height, 2 * width), dtype=x.dtype, device=x.device)
    arguments = {"x_ptr": x, "y_ptr": y, "height": height, "width": width}
    return Problem(kernel, arguments, (2 * height, channels), name="untuned resize")
