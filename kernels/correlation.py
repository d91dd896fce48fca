"""Correlation of two int8 feature maps over horizontal shifts, as stereo matching has it.

out[d, h, w] = (sum over c of src0[c, h, w] * src1[c, h, w - d]) >> out_shift, cut to 8 bits;
pixels with w < d are not written. A program takes pixels across rows, several shifts and many
channels at once. Four pixels are loaded in a word, and shifted pixels are cut out of the word
and the one before, so that src0 and src1 are read once for all shifts of a program.

Shapes: src0 and src1 are (channels, height, width); the result is (shifts, height, width).
Dtypes: int8; sums are int32, exact.
Layout: planes at any stride; what has gaps within its planes is copied. Words are used where
the width, strides and addresses are multiples of 4, pixels elsewhere.
Source: the correlation kernel of AI-Bench8; Mayer et al., A large dataset to train
convolutional networks for disparity, CVPR 2016.
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
from asmtune.kernels._common import check_shape, check_tensors, exact, multiple, problems
from asmtune.runtime.decorator import asm_autotune

_PLAIN = ["shifts", "channels", "pixels", "width", "out_shift", "stride_0", "stride_1"]


@triton.jit
def signed_byte(words, PLACE: tl.constexpr):
    """Return one of the four signed bytes of each word."""
    return (words << (24 - 8 * PLACE)) >> 24


@triton.jit
def add_product(total, src0, src1, PLACE: tl.constexpr):
    """Add channels' products to a total, at one place of four in each word."""
    return total + tl.sum(signed_byte(src0, PLACE) * signed_byte(src1, PLACE), 0)


@triton.jit
def store_words(out_ptr, packed, word, shift, width, written):
    """Store four pixels at once where all are to be written, else those that are."""
    column = (word * 4) % width
    words_ptr = out_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
    tl.store(words_ptr + word, packed, mask=written & (column >= shift))
    for place in tl.static_range(1, 4):
        some = written & (column < shift) & (column + place >= shift)
        tl.store(out_ptr + word * 4 + place, (packed >> (8 * place)).to(tl.int8), mask=some)


@triton.jit
def channels_from(start, TILE: tl.constexpr, WIDE: tl.constexpr):
    """Return TILE channels; WIDE: in 64 bits, as products with strides may need."""
    channel = (start + tl.arange(0, TILE))[:, None]
    return channel.to(tl.int64) if WIDE else channel


@triton.jit
def load_words(maps, channel, there, word, back):
    """Load words of src0, and of src1 `back` words before them, over the words before these."""
    src0_ptr, stride_0, src1_ptr, stride_1, _ = maps
    from_0 = src0_ptr.to(tl.pointer_type(tl.int32), bitcast=True) + channel * (stride_0 // 4)
    from_1 = src1_ptr.to(tl.pointer_type(tl.int32), bitcast=True) + channel * (stride_1 // 4)
    place = word - back
    src0 = tl.load(from_0 + word, mask=there, other=0)
    here = tl.load(from_1 + place, mask=there & (place >= 0), other=0)
    before = tl.load(from_1 + (place - 1), mask=there & (place >= 1), other=0)
    return src0, (here.to(tl.int64) << 32) | (before.to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def by_words(
    maps,
    sizes,
    word,
    first,
    WIDE: tl.constexpr,
    DEPTH: tl.constexpr,
    SHIFTS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Sum four pixels in each word for SHIFTS shifts, at most four, and store them."""
    shifts, channels, pixels, width, out_shift = sizes
    inside, row, back = word < pixels // 4, word[None, :], first // 4
    if DEPTH <= TILE:
        channel = channels_from(0, TILE, WIDE)
        src0, pair = load_words(maps, channel, (channel < channels) & inside[None, :], row, back)
    for step in tl.static_range(SHIFTS):
        total_0, total_1 = tl.zeros_like(word), tl.zeros_like(word)
        total_2, total_3 = tl.zeros_like(word), tl.zeros_like(word)
        for start in tl.range(0, channels if DEPTH > TILE else 1, TILE):
            if DEPTH > TILE:
                channel = channels_from(start, TILE, WIDE)
                there = (channel < channels) & inside[None, :]
                src0, pair = load_words(maps, channel, there, row, back)
            src1 = (pair >> (32 - 8 * (first % 4 + step))).to(tl.int32)
            total_0 = add_product(total_0, src0, src1, 0)
            total_1 = add_product(total_1, src0, src1, 1)
            total_2 = add_product(total_2, src0, src1, 2)
            total_3 = add_product(total_3, src0, src1, 3)
        low = ((total_0 >> out_shift) & 0xFF) | (((total_1 >> out_shift) & 0xFF) << 8)
        high = ((total_2 >> out_shift) & 0xFF) | ((total_3 >> out_shift) << 8)
        shift = first + step
        to_ptr = maps[4] + shift.to(tl.int64) * pixels
        written = inside & (shift < shifts)
        store_words(to_ptr, low | (high << 16), word, shift, width, written)


@triton.jit
def by_pixels(
    maps,
    sizes,
    at,
    first,
    SHIFTS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Sum single pixels for SHIFTS shifts, and store them."""
    src0_ptr, stride_0, src1_ptr, stride_1, out_ptr = maps
    shifts, channels, pixels, width, out_shift = sizes
    shift, at = first + tl.arange(0, SHIFTS)[:, None], at[None, :]
    written = (at < pixels) & (shift < shifts) & (at % width >= shift)
    total = tl.zeros((SHIFTS, at.shape[1]), tl.int32)
    for start in tl.range(0, channels, TILE):
        channel = (start + tl.arange(0, TILE))[:, None, None]
        there, channel = channel < channels, channel.to(tl.int64)
        from_0 = src0_ptr + channel * stride_0 + at[None, :, :]
        from_1 = src1_ptr + channel * stride_1 + (at - shift)[None, :, :]
        src0 = tl.load(from_0, mask=there & (at < pixels)[None, :, :], other=0).to(tl.int32)
        src1 = tl.load(from_1, mask=there & written[None, :, :], other=0).to(tl.int32)
        total += tl.sum(src0 * src1, 0)
    out_ptr += shift.to(tl.int64) * pixels + at
    tl.store(out_ptr, (total >> out_shift).to(tl.int8), mask=written)


# Where src0 were known to be aligned, it would be loaded as vectors, by other threads than
# src1, whose loads are not aligned, and go through shared memory to meet it.
@triton.jit(do_not_specialize=_PLAIN, do_not_specialize_on_alignment=["src0_ptr", "src1_ptr"])
def kernel(
    src0_ptr,
    src1_ptr,
    out_ptr,
    shifts,
    channels,
    pixels,
    width,
    out_shift,
    stride_0,
    stride_1,
    MULTIPLE: tl.constexpr,
    WIDE: tl.constexpr,
    DEPTH: tl.constexpr,
    SHIFTS: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute BLOCK pixels and SHIFTS shifts a program, at once if DEPTH channels fit CHANNELS."""
    TILE: tl.constexpr = CHANNELS if CHANNELS < DEPTH else DEPTH
    first = tl.program_id(1) * SHIFTS
    maps = (src0_ptr, stride_0, src1_ptr, stride_1, out_ptr)
    sizes = (shifts, channels, pixels, width, out_shift)
    if MULTIPLE % 4 == 0:
        words = tl.program_id(0) * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
        by_words(maps, sizes, words, first, WIDE, DEPTH, SHIFTS, TILE)
    else:
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        by_pixels(maps, sizes, at, first, SHIFTS, TILE)


OUTPUTS = ("out_ptr",)

DTYPES = ("i8",)

SHAPES = (
    {"shifts": 5, "channels": 58, "height": 112, "width": 88, "out_shift": 0},
    {"shifts": 24, "channels": 32, "height": 96, "width": 320, "out_shift": 7},
    {"shifts": 8, "channels": 256, "height": 64, "width": 128, "out_shift": 10},
    {"shifts": 5, "channels": 58, "height": 111, "width": 87, "out_shift": 0},
)

MOST_CHANNELS = (1 << 17) - 1
"""Products reach 2**14, and sums are to stay under 2**31."""

DEFAULT = Config({"SHIFTS": 1, "CHANNELS": 64, "BLOCK": 32}, num_warps=1)
"""16 words of either map a thread, which makes 1540 programs at AI-Bench8's shape."""


def space() -> Space:
    """Build the space: shifts, channels at once and pixels a program, and warps."""
    axes = {
        "SHIFTS": (1, 2, 4),
        "CHANNELS": (16, 32, 64, 128, 256),
        "BLOCK": (16, 32, 64, 128, 256),
        "num_warps": (1, 2, 4, 8),
    }
    return (
        Space(axes, default=DEFAULT)
        .where("a thread has 8 to 128 pixels of all channels at once", _fits_threads)
        .where(
            "under half of the shifts are of no use",
            lambda SHIFTS, shifts: 2 * shifts > SHIFTS,
        )
        .where(
            "under half of the channels are of no use",
            lambda CHANNELS, channels: 2 * channels > CHANNELS or CHANNELS == 64,
        )
    )


def _fits_threads(CHANNELS: int, BLOCK: int, num_warps: int, channels: int) -> bool:
    tile = min(CHANNELS, triton.next_power_of_2(channels))
    return 8 <= tile * BLOCK // (num_warps * 32) <= 128


def _grid(values: Mapping[str, Any]) -> tuple[int, int]:
    blocks = triton.cdiv(values["pixels"], values["BLOCK"])
    return blocks, triton.cdiv(values["shifts"], values["SHIFTS"])


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random maps of all int8 values."""
    sizes = (shape["channels"], shape["height"], shape["width"])
    maps = (torch.randint(-128, 128, sizes, device=device).to(torch_dtype(dtype)) for _ in "01")
    settings = {"shifts": shape["shifts"], "out_shift": shape["out_shift"]}
    return {**dict(zip(("src0", "src1"), maps, strict=True)), **settings}


def baseline(
    src0: torch.Tensor,
    src1: torch.Tensor,
    shifts: int,
    out_shift: int = 0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the kernel's result in PyTorch; maps may hold their whole numbers in any dtype."""
    wide = src0.shape[2]
    result = _result(src0, shifts) if out is None else out
    src0, src1 = src0.to(torch.int32), src1.to(torch.int32)
    for d in range(min(shifts, wide)):
        total = (src0[:, :, d:] * src1[:, :, : wide - d]).sum(0, dtype=torch.int32)
        result[d, :, d:] = (total >> out_shift).to(torch.int8)
    return result


def correlation(
    src0: torch.Tensor,
    src1: torch.Tensor,
    shifts: int,
    out_shift: int = 0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Correlate two maps over the shifts 0 to shifts - 1 by the tuned kernel.

    Args:
        src0: (channels, height, width), int8, on a GPU.
        src1: map of the same shape and dtype, which is moved right.
        shifts: number of shifts, 1 or more.
        out_shift: bits that sums lose, rounding down, 0 to 31; 8 bits of the rest are kept.
        out: (shifts, height, width), int8, contiguous, to be written; else zeros are taken.

    Returns:
        `out`, of which pixels with w < d are as they were.

    Raises:
        ValueError: an argument is not one of those, or there are more than 131071 channels.
    """
    maps = {"src0": src0, "src1": src1, **({} if out is None else {"out": out})}
    check_tensors("correlation", maps, DTYPES)
    _check_sizes(src0, src1, shifts, out_shift)
    out = _result(src0, shifts) if out is None else out
    check_shape("correlation", "out", out, (shifts, *src0.shape[1:]))
    if not out.is_contiguous():
        raise ValueError("correlation: out has gaps or swapped axes; it must be contiguous")
    if out.numel():
        _tuned[_grid](**_arguments(src0, src1, shifts, out_shift, out))
    return out


def _check_sizes(src0: torch.Tensor, src1: torch.Tensor, shifts: int, out_shift: int) -> None:
    if src0.ndim != 3 or not 1 <= src0.shape[0] <= MOST_CHANNELS:
        raise ValueError(
            f"correlation: src0 is {tuple(src0.shape)}; it must be (channels, height, width), "
            f"of 1 to {MOST_CHANNELS} channels"
        )
    check_shape("correlation", "src1", src1, src0.shape)
    if shifts < 1:
        raise ValueError(f"correlation: shifts is {shifts}; it must be 1 or more")
    if not 0 <= out_shift <= 31:
        raise ValueError(f"correlation: out_shift is {out_shift}; it must lie between 0 and 31")


def _planes(x: torch.Tensor) -> torch.Tensor:
    """Return planes without gaps; a copy where they have some."""
    return x if x[0].is_contiguous() else x.contiguous()


def _result(src0: torch.Tensor, shifts: int) -> torch.Tensor:
    return torch.zeros((shifts, *src0.shape[1:]), dtype=torch.int8, device=src0.device)


def _arguments(
    src0: torch.Tensor,
    src1: torch.Tensor,
    shifts: int,
    out_shift: int,
    out: torch.Tensor | None = None,
) -> dict[str, Any]:
    """Give the launch's arguments by name; without `out` with zeros for the result."""
    out = _result(src0, shifts) if out is None else out
    src0, src1 = _planes(src0), _planes(src1)
    channels, height, width = src0.shape
    strides = {"stride_0": src0.stride(0), "stride_1": src1.stride(0)}
    sizes = {"channels": channels, "pixels": height * width, "width": width}
    tensors = {"src0_ptr": src0, "src1_ptr": src1, "out_ptr": out}
    addresses = [tensor.data_ptr() for tensor in tensors.values()]
    contract = {
        "MULTIPLE": multiple(width, *strides.values(), *addresses),
        "WIDE": int(channels * max(strides.values()) >= 1 << 31),
        "DEPTH": triton.next_power_of_2(channels),
    }
    numbers = {"shifts": shifts, **sizes, "out_shift": out_shift}
    return {**tensors, **numbers, **strides, **contract}


problem = problems(kernel, "correlation", inputs, _arguments, _grid)
reference = exact(baseline, "src0_ptr", "src1_ptr", "shifts", "out_shift")
_tuned = asm_autotune(space=space, key=["shifts", "channels", pow2("pixels"), "MULTIPLE"])(kernel)
