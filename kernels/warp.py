"""Horizontal warp of int8 images by an offset for each pixel, in 8.8 fixed point.

At the offset o, output w lies o / 256 pixels left of w: with i = w - (o >> 8) and the
fraction f, the low byte of o, it is (x[i] * 256 + (x[i - 1] - x[i]) * f) >> 8. What is left or
right of a row reads 0. All channels share an image of offsets: a program reads a part of it
once, four offsets in a word of 64 bits, gathers that part of one to four channels, from L1
within a row, and writes four pixels in a word.

Shapes: x is (channels, height, width), offset is (height, width); the result is as x.
Dtypes: x int8, offset int16; exact.
Layout: any strides of channels and rows; what has gaps in its rows is copied. Words are used
where the width, and the stride and address of offsets, are multiples of 4, pixels elsewhere.
Source: the warp kernel of AI-Bench8, with columns and weights that do not wrap at 8 bits, so
that rows may be longer than 128 and fractions reach 255.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.core.keys.buckets import pow2
from asmtune.core.space.space import Space
from asmtune.kernels._common import (
    as_rows,
    check_shape,
    check_tensors,
    dense_rows,
    exact,
    multiple,
    problems,
    vouched,
)
from asmtune.runtime.decorator import asm_autotune


@triton.jit
def mix(x_ptr, offsets, column, width, PLACE: tl.constexpr):
    """Mix pixels at columns of rows, moved by the offsets at a place in their words."""
    offset = (offsets >> (16 * PLACE)).to(tl.int16).to(tl.int32)
    at, fraction = column - (offset >> 8), offset & 0xFF
    here = tl.load(x_ptr + at, mask=(at >= 0) & (at < width), other=0).to(tl.int32)
    left = tl.load(x_ptr + (at - 1), mask=(at >= 1) & (at <= width), other=0).to(tl.int32)
    return (here * 256 + (left - here) * fraction) >> 8


_PLAIN = ["channels", "height", "width", "stride_xc", "stride_xh", "stride_o"]


@triton.jit(do_not_specialize=_PLAIN)
def kernel(
    x_ptr,
    offset_ptr,
    y_ptr,
    channels,
    height,
    width,
    stride_xc,
    stride_xh,
    stride_o,
    MULTIPLE: tl.constexpr,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute CHANNELS channels, ROWS rows and BLOCK columns a program."""
    FULL: tl.constexpr = MULTIPLE % BLOCK == 0
    SIZE: tl.constexpr = 4 if MULTIPLE % 4 == 0 else 1
    groups, columns = tl.cdiv(height, ROWS), vouched(width, MULTIPLE)
    # Programs past the last row do it again, as they do the last channel: no mask is needed.
    row = tl.program_id(0) % groups * ROWS + tl.arange(0, ROWS)
    row = tl.minimum(row, height - 1).to(tl.int64)[:, None]
    word = (tl.program_id(1) * (BLOCK // SIZE) + tl.arange(0, BLOCK // SIZE))[None, :]
    # Neighbouring words go to neighbouring threads even where a thread has two: it gathers
    # pixel by pixel, and vectors of words would reach it through shared memory.
    word = tl.max_contiguous(word, (1, 1))
    inside = (word < columns // SIZE) | FULL
    offset_ptr += row * vouched(stride_o, MULTIPLE)
    y_ptr += row * columns
    if SIZE == 4:
        # A thread's word gives four columns, so that threads gather where they load and store:
        # vectors of offsets would go to other threads, and results back, by shared memory.
        offset_ptr = offset_ptr.to(tl.pointer_type(tl.int64), bitcast=True)
    offsets = tl.load(offset_ptr + word, mask=inside, other=0)
    for step in tl.static_range(CHANNELS):
        channel = tl.minimum(tl.program_id(0) // groups * CHANNELS + step, channels - 1)
        channel = channel.to(tl.int64)
        from_ptr = x_ptr + channel * stride_xc + row * stride_xh
        mixed = mix(from_ptr, offsets, word * SIZE, columns, 0)
        for byte in tl.static_range(1, SIZE):
            pixel = mix(from_ptr, offsets, word * SIZE + byte, columns, byte)
            mixed = (mixed & (0xFFFFFFFF >> (32 - 8 * byte))) | (pixel << (8 * byte))
        to_ptr = y_ptr + channel * height * columns
        if SIZE == 4:
            to_ptr = to_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
        tl.store(to_ptr + word, mixed.to(to_ptr.dtype.element_ty), mask=inside)


OUTPUTS = ("y_ptr",)

DTYPES = ("i8",)

SHAPES = (
    {"channels": 3, "height": 1024, "width": 1024},
    {"channels": 3, "height": 1080, "width": 1920},
    {"channels": 32, "height": 256, "width": 512},
    {"channels": 3, "height": 499, "width": 750},
)

DEFAULT = Config({"CHANNELS": 1, "ROWS": 1, "BLOCK": 512}, num_warps=4)
"""Four pixels a thread: eight bytes of offsets, a word of results."""


def space() -> Space:
    """Build the space: channels, rows and columns a program, and warps."""
    axes = {
        "CHANNELS": (1, 2, 3, 4),
        "ROWS": (1, 2, 4, 8),
        "BLOCK": (128, 256, 512, 1024),
        "num_warps": (1, 2, 4, 8),
    }
    return (
        Space(axes, default=DEFAULT)
        .where(
            "a thread has one or two words of a channel",
            lambda ROWS, BLOCK, num_warps: 4 <= ROWS * BLOCK // (num_warps * 32) <= 8,
        )
        .where(
            "no channel is done twice",
            lambda CHANNELS, channels: CHANNELS == 1 or channels % CHANNELS == 0,
        )
        .where(
            "a block is under twice as wide as a row",
            lambda BLOCK, width: BLOCK <= 512 or 2 * width > BLOCK,
        )
    )


def _grid(values: Mapping[str, Any]) -> tuple[int, int]:
    groups = triton.cdiv(values["height"], values["ROWS"])
    of_channels = triton.cdiv(values["channels"], values["CHANNELS"])
    return of_channels * groups, triton.cdiv(values["width"], values["BLOCK"])


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make a random image of all int8 values, and offsets of up to 16 pixels to either side."""
    plane = (shape["height"], shape["width"])
    x = torch.randint(-128, 128, (shape["channels"], *plane), device=device)
    offset = torch.randint(-(16 << 8), 16 << 8, plane, device=device, dtype=torch.int16)
    return {"x": x.to(torch_dtype(dtype)), "offset": offset}


def baseline(x: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Compute the kernel's result in PyTorch; both may hold their whole numbers in any dtype."""
    x, offset = x.to(torch.int32), offset.to(torch.int32)
    width = x.shape[2]
    right = torch.arange(width, device=x.device) - (offset >> 8)
    here, left = (_read(x, at) for at in (right, right - 1))
    return ((here * 256 + (left - here) * (offset & 0xFF)) >> 8).to(torch.int8)


def _read(x: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """Read the row's pixels at columns of (height, width) in each channel, 0 beyond its ends."""
    width = x.shape[2]
    at = column.clamp(0, width - 1).expand(x.shape)
    return torch.where((column >= 0) & (column < width), x.gather(2, at), 0)


def warp(x: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Move an image's pixels right by their offsets, by the tuned kernel.

    Args:
        x: (channels, height, width), int8, on a GPU.
        offset: (height, width), int16: 256ths of a pixel; negative ones move left.

    Returns:
        A tensor of x's shape and dtype.

    Raises:
        ValueError: dtypes or shapes are others, or the tensors are of two devices.
    """
    check_tensors("warp", {"x": x}, DTYPES)
    check_tensors("warp", {"offset": offset}, ("i16",))
    if x.ndim != 3:
        raise ValueError(f"warp: x is {tuple(x.shape)}; it must be (channels, height, width)")
    check_shape("warp", "offset", offset, x.shape[1:])
    if offset.device != x.device:
        raise ValueError(f"warp: offset is on {offset.device}, x on {x.device}; move one of them")
    arguments = _arguments(x, offset)
    if x.numel():
        _tuned[_grid](**arguments)
    return arguments["y_ptr"]


def _arguments(x: torch.Tensor, offset: torch.Tensor) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the result."""
    x, offset = dense_rows(x), as_rows(offset)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    sizes = dict(zip(("channels", "height", "width"), x.shape, strict=True))
    strides = {"stride_xc": x.stride(0), "stride_xh": x.stride(1), "stride_o": offset.stride(0)}
    tensors = {"x_ptr": x, "offset_ptr": offset, "y_ptr": y}
    # The offsets' address too, in elements: words of four lie at multiples of 8 bytes. Pixels
    # are gathered one by one, so that x may lie anywhere.
    vouched_for = multiple(x.shape[2], offset.stride(0), offset.data_ptr() // 2)
    return {**tensors, **sizes, **strides, "MULTIPLE": vouched_for}


problem = problems(kernel, "warp", inputs, _arguments, _grid)
reference = exact(baseline, "x_ptr", "offset_ptr")
_tuned = asm_autotune(space=space, key=["channels", pow2("height"), "width", "MULTIPLE"])(kernel)
