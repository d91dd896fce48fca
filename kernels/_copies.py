"""Copies in another layout by one launch, which a prepared call makes again."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.kernels._conv2d import within
from asmtune.runtime.decorator import asm_autotune

_BLOCK = 1024
_NUMBERS = [
    *("height", "width", "channels", "rows", "cols", "top", "left"),
    *("stride_n", "stride_h", "stride_w", "stride_c"),
]


@triton.jit(do_not_specialize=_NUMBERS)
def frame(
    x_ptr,
    y_ptr,
    height,
    width,
    channels,
    rows,
    cols,
    top,
    left,
    stride_n,
    stride_h,
    stride_w,
    stride_c,
    PITCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy images into larger ones of zeros, (.., rows, cols, PITCH) without gaps, in one pass.

    PyTorch's pad fills all of it first, and then copies element by element.
    """
    size = rows * cols * PITCH
    blocks = tl.cdiv(size, BLOCK)
    image = (tl.program_id(0) // blocks).to(tl.int64)
    at = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    c, row, col = at % PITCH, at // PITCH // cols - top, at // PITCH % cols - left
    there = within(row, height) & within(col, width) & (c < channels)
    x = x_ptr + image * stride_n + row.to(tl.int64) * stride_h + col.to(tl.int64) * stride_w
    values = tl.load(x + c.to(tl.int64) * stride_c, mask=there, other=0.0)
    tl.store(y_ptr + image * size + at, values, mask=at < size)


_frame = asm_autotune(configs=[Config({"BLOCK": _BLOCK}, num_warps=4)])(frame)

MOST_ELEMENTS = (1 << 31) - _BLOCK
"""Most elements of an image that is copied: they are counted in 32 bits."""


def framed(x: torch.Tensor, size: tuple[int, int, int], at: tuple[int, int]) -> torch.Tensor:
    """Copy x of (batch, channels, height, width) into zeros of (batch, *size), from `at` on.

    Args:
        x: images of any strides.
        size: rows, columns, and channels of the result, `MOST_ELEMENTS` at most.
        at: row and column of the images in it.
    """
    framed = torch.empty((x.shape[0], *size), device=x.device, dtype=x.dtype)
    if framed.numel() and not framed.is_meta:
        programs = x.shape[0] * triton.cdiv(math.prod(size), _BLOCK)
        numbers = (x.shape[2], x.shape[3], x.shape[1], *size[:2], *at)
        strides = (x.stride(0), x.stride(2), x.stride(3), x.stride(1))
        _frame[(programs,)](x, framed, *numbers, *strides, PITCH=size[2])
    return framed
