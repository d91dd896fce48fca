"""Blocks that share a scale, and casts to FP8 and back in plain PyTorch, on any device.

A scale is what a stored number is multiplied by: value = stored * scale, as `torch._scaled_mm`
takes it. Formats are those of OCP's "8-bit Floating Point Specification (OFP8)", as `torch.finfo`
gives them: e4m3 (`float8_e4m3fn`, largest 448) and e5m2 (`float8_e5m2`, largest 57,344).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from asmtune.base.errors import ArgumentTypeError, InputError

E4M3: Final = torch.float8_e4m3fn
E5M2: Final = torch.float8_e5m2
FORMATS: Final = (E4M3, E5M2)


@dataclass(frozen=True)
class Granularity:
    """The block of elements that shares a scale.

    Attributes:
        block: elements along each of the last axes, -1 for the whole axis. Axes before those are
            whole: () is one scale per tensor, (1,) one per channel of the last axis, (1, 128) one
            per row and 128 columns, (128, 128) one per such tile.
    """

    block: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        sizes = self.block if isinstance(self.block, tuple | list) else (None,)
        if not all(type(size) is int and (size >= 1 or size == -1) for size in sizes):
            raise InputError(
                f"block={self.block!r}: give a tuple of sizes from 1, or -1 for the whole axis"
            )
        object.__setattr__(self, "block", tuple(sizes))

    def __str__(self) -> str:
        return f"block {self.block}" if self.block else "tensor"

    def sizes(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the block's size along each axis of a tensor of this shape.

        Raises:
            InputError: the tensor is empty or has too few axes, or blocks do not divide it.
        """
        whole = len(shape) - len(self.block)
        if whole < 0 or 0 in shape:
            raise InputError(
                f"shape {tuple(shape)}: scales per {self} need {len(self.block)} axes or more, "
                "none of them empty"
            )
        sizes = [*shape[:whole]]
        for axis, (size, most) in enumerate(zip(self.block, shape[whole:], strict=True), whole):
            if size != -1 and most % size:
                divisor = max(n for n in range(1, min(size, most) + 1) if most % n == 0)
                raise InputError(
                    f"shape {tuple(shape)}: axis {axis} has {most} elements, which blocks of "
                    f"{size} do not divide; pad it to {math.ceil(most / size) * size}, or take "
                    f"{divisor}"
                )
            sizes.append(most if size == -1 else size)
        return tuple(sizes)


def blocked(values: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """View values as (blocks, size of a block) for each axis, one after another."""
    split = [
        n
        for most, size in zip(values.shape, sizes, strict=True)
        for n in (most // max(1, size), size)
    ]
    return values.reshape(split)


def amax_of(values: torch.Tensor, granularity: Granularity) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each block's largest finite magnitude, and how many of its elements are finite.

    Both have one element per block along each axis; magnitudes are fp32, and 0 where none is
    finite.

    Raises:
        InputError: blocks do not divide the values, or these are no floats.
    """
    if not isinstance(values, torch.Tensor) or not values.is_floating_point():
        what = getattr(values, "dtype", type(values).__name__)
        raise ArgumentTypeError(f"scales are of floating-point tensors; this is {what}")
    blocks = blocked(values.detach().float(), granularity.sizes(values.shape))
    inside = tuple(range(1, blocks.dim(), 2))
    if not inside:  # one number
        blocks, inside = blocks.reshape(1), (0,)
    finite = blocks.isfinite()
    return torch.where(finite, blocks.abs(), 0.0).amax(inside), finite.sum(inside)


def scaled(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return values / scale in fp32, with each block's scale.

    Raises:
        InputError: the scales do not divide the values into blocks.
    """
    blocks, scales = _beside(values, scale)
    return (blocks / scales).reshape(values.shape)


def quantize(values: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = E4M3) -> torch.Tensor:
    """Cast values / scale to FP8: round to nearest even, saturate.

    What is larger than the format's largest number, infinities included, becomes that number, as
    OCP's saturating mode has it. NaN stays NaN.

    Args:
        values: floats of any shape.
        scale: fp32, one element per block: its shape says what the blocks are.
        dtype: `torch.float8_e4m3fn` or `torch.float8_e5m2`.

    Raises:
        InputError: the scales do not divide the values into blocks, or the dtype is another.
    """
    largest = float(torch.finfo(checked_format(dtype)).max)
    return scaled(values, scale).clamp_(-largest, largest).to(dtype)


def dequantize(
    stored: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return stored * scale, with each block's scale, computed in fp32.

    Raises:
        InputError: the scales do not divide the values into blocks.
    """
    blocks, scales = _beside(stored, scale)
    return (blocks * scales).reshape(stored.shape).to(dtype)


def count_clipped(values: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = E4M3) -> int:
    """Count finite elements that saturate by more than rounding would change them.

    Those are the ones above the middle between the format's largest number and what the next
    would be: 464 times the scale in e4m3, 61,440 times in e5m2.
    """
    info = torch.finfo(checked_format(dtype))
    step = info.eps * 2.0 ** math.floor(math.log2(info.max))
    finite = values.isfinite()
    return int(((scaled(values, scale).abs() > info.max + step / 2) & finite).sum())


def checked_format(dtype: torch.dtype) -> torch.dtype:
    """Return an FP8 format.

    Raises:
        InputError: it is no such format.
    """
    if dtype not in FORMATS:
        raise InputError(f"dtype={dtype}: give torch.float8_e4m3fn or torch.float8_e5m2")
    return dtype


def _beside(values: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values in blocks, and scales that broadcast over them, both in fp32."""
    if not isinstance(values, torch.Tensor) or not isinstance(scale, torch.Tensor):
        given = f"{type(values).__name__}, {type(scale).__name__}"
        raise ArgumentTypeError(f"values and scale are {given}; give tensors")
    shape, counts = tuple(values.shape), tuple(scale.shape)
    if scale.numel() == 1:
        counts = (1,) * len(shape)
    if len(counts) != len(shape) or any(
        count == 0 or most % count for count, most in zip(counts, shape, strict=True)
    ):
        raise InputError(
            f"scales of shape {tuple(scale.shape)} do not divide values of shape {shape}: give one "
            "axis for each of theirs, and a divisor of its elements"
        )
    sizes = [most // count for count, most in zip(counts, shape, strict=True)]
    scales = scale.float().reshape([n for count in counts for n in (count, 1)])
    return blocked(values.float(), sizes), scales
