"""Bilinear upsampling of int8 images by two, in fixed point with 7 fraction bits.

Output (y, x) lies at (y / 2, x / 2) of the input. Across, then down, two neighbours a and b
mix to (a * (128 - f) + b * f) >> 7 at the fraction f; the last column and row are their own
neighbours. As f is 0 or 64, that is a, or (a + b) >> 1, and four pixels in a word of 32 bits
are averaged at once. A program walks down its columns: a row is read once, as words, and
serves the rows above and below.

Shapes: x is (channels, height, width); the result is (channels, 2 * height, 2 * width).
Dtypes: int8; exact.
Layout: any strides of channels and rows; x is copied where rows have gaps. Words are read
where width, strides and address are multiples of 4, single pixels elsewhere.
Source: the resize kernel of AI-Bench8; the average of packed bytes, (a & b) + ((a ^ b) >> 1),
is of Dietz, The aggregate magic algorithms.
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
from asmtune.kernels._common import check_tensors, dense_rows, exact, multiple, problems, vouched
from asmtune.runtime.decorator import asm_autotune


@triton.jit
def average(a, b, PACKED: tl.constexpr):
    """Compute (a + b) >> 1 of signed bytes; PACKED: of four in each word."""
    if PACKED:
        # The sign bits flipped make bytes unsigned, whose averages do not cross bytes.
        a ^= -2139062144  # 0x80808080
        b ^= -2139062144
        mean = ((a & b) + (((a ^ b) >> 1) & 0x7F7F7F7F)) ^ -2139062144
    else:
        mean = ((a.to(tl.int16) + b.to(tl.int16)) >> 1).to(tl.int8)
    return mean


@triton.jit
def spread(pair):
    """Return the two low bytes of a word, each followed by a zero byte."""
    return (pair | (pair << 8)) & 0x00FF00FF


@triton.jit
def alternate(a, b, PACKED: tl.constexpr):
    """Interleave pixels of a and b along the last axis."""
    if PACKED:
        low = spread(a & 0xFFFF) | (spread(b & 0xFFFF) << 8)
        high = spread((a >> 16) & 0xFFFF) | (spread((b >> 16) & 0xFFFF) << 8)
    else:
        low, high = a, b
    return tl.interleave(low, high)


@triton.jit
def load_row(ptr, column, count, PACKED: tl.constexpr, FULL: tl.constexpr):
    """Load pixels or words at the columns of a row, and those a pixel further."""
    last = count - 1
    here = tl.load(ptr + column) if FULL else tl.load(ptr + column, mask=column <= last, other=0)
    after = tl.load(ptr + tl.minimum(column + 1, last))
    if PACKED:
        # Past the end of the row its last pixel stands, the highest byte of the last word.
        carried = tl.where(column == last, here >> 24, after)
        after = ((here >> 8) & 0x00FFFFFF) | (carried << 24)
    return here, after


@triton.jit
def store_row(ptr, start, count, values, BLOCK: tl.constexpr, FULL: tl.constexpr):
    """Store BLOCK values from `start` on in a row of `count`."""
    column = start + tl.arange(0, BLOCK)
    if FULL:
        tl.store(ptr + column, values)
    else:
        tl.store(ptr + column, values, mask=column < count)


@triton.jit(do_not_specialize=["channels", "height", "width", "stride_xc", "stride_xh"])
def kernel(
    x_ptr,
    y_ptr,
    channels,
    height,
    width,
    stride_xc,
    stride_xh,
    MULTIPLE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Enlarge ROWS input rows and BLOCK input columns of a channel a program."""
    FULL: tl.constexpr = MULTIPLE % BLOCK == 0
    PACKED: tl.constexpr = MULTIPLE % 4 == 0
    SIZE: tl.constexpr = 4 if PACKED else 1
    WORDS: tl.constexpr = BLOCK // SIZE
    groups = tl.num_programs(0) // channels
    channel = (tl.program_id(0) // groups).to(tl.int64)
    first = tl.program_id(0) % groups * ROWS
    columns = vouched(width, MULTIPLE)
    start, count = tl.program_id(1) * WORDS, columns // SIZE
    x_ptr += channel * vouched(stride_xc, MULTIPLE)
    y_ptr += channel * height * columns * 4
    if PACKED:
        x_ptr = x_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
        y_ptr = y_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
    stride = (vouched(stride_xh, MULTIPLE) // SIZE).to(tl.int64)
    column = start + tl.arange(0, WORDS)
    here, after = load_row(x_ptr + first * stride, column, count, PACKED, FULL)
    between = average(here, after, PACKED)
    for step in tl.static_range(ROWS):
        # Rows past the last are the last again: no mask is needed down the columns.
        row = tl.minimum(first + step, height - 1).to(tl.int64)
        below = tl.minimum(first + step + 1, height - 1).to(tl.int64)
        under, after = load_row(x_ptr + below * stride, column, count, PACKED, FULL)
        under_between = average(under, after, PACKED)
        out = y_ptr + row * count * 4
        line = alternate(here, between, PACKED)
        store_row(out, 2 * start, 2 * count, line, 2 * WORDS, FULL)
        mixed = average(here, under, PACKED), average(between, under_between, PACKED)
        line = alternate(mixed[0], mixed[1], PACKED)
        store_row(out + 2 * count, 2 * start, 2 * count, line, 2 * WORDS, FULL)
        here, between = under, under_between


OUTPUTS = ("y_ptr",)

DTYPES = ("i8",)

SHAPES = (
    {"channels": 3, "height": 512, "width": 512},
    {"channels": 3, "height": 1080, "width": 1920},
    {"channels": 64, "height": 256, "width": 256},
    {"channels": 3, "height": 499, "width": 750},
)

DEFAULT = Config({"ROWS": 2, "BLOCK": 512}, num_warps=2)
"""Two words a row and thread, whose results are 16 bytes each."""


def space() -> Space:
    """Build the space: rows and columns a program, and warps."""
    axes = {
        "ROWS": (1, 2, 4, 8),
        "BLOCK": (128, 256, 512, 1024, 2048),
        "num_warps": (1, 2, 4, 8),
    }
    return (
        Space(axes, default=DEFAULT)
        .where(
            "a thread has one to four words of a row",
            lambda BLOCK, num_warps: 4 <= BLOCK // (num_warps * 32) <= 16,
        )
        .where(
            "a block is under twice as wide as a row",
            lambda BLOCK, width: BLOCK <= 512 or 2 * width > BLOCK,
        )
    )


def _grid(values: Mapping[str, Any]) -> tuple[int, int]:
    groups = triton.cdiv(values["height"], values["ROWS"])
    return values["channels"] * groups, triton.cdiv(values["width"], values["BLOCK"])


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make a random image of all int8 values."""
    sizes = (shape["channels"], shape["height"], shape["width"])
    return {"x": torch.randint(-128, 128, sizes, device=device).to(torch_dtype(dtype))}


def baseline(x: torch.Tensor) -> torch.Tensor:
    """Compute the kernel's result in PyTorch; x may hold its whole numbers in any dtype."""
    across = _doubled(x.to(torch.int32), 2)
    return _doubled(across, 1).to(torch.int8)


def _doubled(x: torch.Tensor, axis: int) -> torch.Tensor:
    """Double the elements along an axis, in fixed point with 7 fraction bits."""
    size = x.shape[axis]
    place = torch.arange(2 * size, device=x.device) << 6
    below, fraction = place >> 7, place & 127
    shape = [-1 if other == axis else 1 for other in range(x.ndim)]
    fraction = fraction.view(shape)
    a = x.index_select(axis, below)
    b = x.index_select(axis, (below + 1).clamp(max=size - 1))
    return (a * (128 - fraction) + b * fraction) >> 7


def resize(x: torch.Tensor) -> torch.Tensor:
    """Enlarge an image to twice its height and width by the tuned kernel.

    Args:
        x: (channels, height, width), int8, on a GPU.

    Returns:
        (channels, 2 * height, 2 * width), int8.

    Raises:
        ValueError: x is of another dtype, or has not three axes.
    """
    check_tensors("resize", {"x": x}, DTYPES)
    if x.ndim != 3:
        raise ValueError(f"resize: x is {tuple(x.shape)}; it must be (channels, height, width)")
    arguments = _arguments(x)
    if x.numel():
        _tuned[_grid](**arguments)
    return arguments["y_ptr"]


def _arguments(x: torch.Tensor) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the result."""
    x = dense_rows(x)
    channels, height, width = x.shape
    y = torch.empty((channels, 2 * height, 2 * width), dtype=x.dtype, device=x.device)
    sizes = dict(zip(("channels", "height", "width"), x.shape, strict=True))
    strides = {"stride_xc": x.stride(0), "stride_xh": x.stride(1)}
    # The address too: words lie at multiples of 4, and an inner part of an image need not.
    vouched_for = multiple(sizes["width"], *strides.values(), x.data_ptr())
    return {"x_ptr": x, "y_ptr": y, **sizes, **strides, "MULTIPLE": vouched_for}


problem = problems(kernel, "resize", inputs, _arguments, _grid)
reference = exact(baseline, "x_ptr")
_tuned = asm_autotune(space=space, key=["channels", pow2("height"), "width", "MULTIPLE"])(kernel)
