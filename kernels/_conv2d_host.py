"""Host side of the convolution: its configs, layouts, sizes, memory and copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton

from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.kernels._common import multiple
from asmtune.kernels._conv2d import Window
from asmtune.kernels._copies import framed
from asmtune.kernels._split import SUMS_BYTES, workspace

FEWEST = 32
"""Least number of channels at which those of one tap fill a step."""

MOST_PARTS = 4
"""Most programs that share a tile."""

_LARGEST_BLOCK = 256
_MOST_PIXELS = (1 << 31) - _LARGEST_BLOCK


@dataclass(frozen=True)
class Layer:
    """A convolution in the kernel's layout.

    Attributes:
        x: (batch, depth, rows, cols), dense along depth; pixels may overlap.
        weight: (filters, taps_h, taps_w, depth), without gaps.
        bias: (filters,), or None.
        y: (batch, out_height, out_width, filters), without gaps, to be written.
        window: stride, padding and dilation over x.
        size: channels, height and width of the layer, of which a copy in x may have more.
        groups: groups of channels, each of which has filters of its own.
    """

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    y: torch.Tensor
    window: Window
    size: tuple[int, int, int]
    groups: int = 1

    def arguments(self, *, relu: bool) -> dict[str, Any]:
        """Give a launch's arguments by parameter name, without the tuned ones."""
        batch, (out_height, out_width) = self.x.shape[0], self.y.shape[1:3]
        depth, filters = self.x.shape[1] // self.groups, self.weight.shape[0] // self.groups
        strides = pixel_strides(self.x, depth)
        sizes = {"batch": batch, "depth": depth, "filters": filters}
        sizes |= {"out_height": out_height, "out_width": out_width}
        sizes |= dict(zip(("channels", "height", "width"), self.size, strict=True))
        sizes |= strides
        room = self.groups * sums_bytes(batch, out_height, out_width, filters)
        shared = 0 < room <= SUMS_BYTES
        sums, counts = workspace(self.y.device, room) if shared else (None, None)
        return {
            "x_ptr": self.x,
            "weight_ptr": self.weight,
            "bias_ptr": self.bias,
            "y_ptr": self.y,
            "sums_ptr": sums,
            "count_ptr": counts,
            **sizes,
            **window_arguments(self.weight.shape[1:3], self.window),
            "RELU": int(relu),
            "IN_PLACE": int(self._is_in_place(*strides.values())),
            "PADDED": int(self._is_padded()),
            "GROUPS": self.groups,
            "MULTIPLE": multiple(depth, *strides.values()),
            "OUT_MULTIPLE": multiple(filters),
        }

    def _is_padded(self) -> bool:
        """Say if taps reach beyond the image."""
        axes = zip(self.x.shape[2:], self.y.shape[1:3], self.weight.shape[1:3], strict=True)
        window = zip(self.window.stride, self.window.padding, self.window.dilation, strict=True)
        return any(
            pad > 0 or (extent - 1) * stride + (taps - 1) * apart - pad >= size
            for (size, extent, taps), (stride, pad, apart) in zip(axes, window, strict=True)
        )

    def _is_in_place(self, *strides: int) -> bool:
        """Say if the result's pixels are those of x, in order and evenly spaced."""
        batch, _, rows, cols = self.x.shape
        wanted = (rows * cols * strides[2], cols * strides[2], strides[2])
        apart = zip((batch, rows, cols), strides, wanted, strict=True)
        alone = tuple(self.weight.shape[1:3]) == (1, 1) and self.window.is_whole
        alone = alone and self.y.shape[1:3] == self.x.shape[2:]
        return alone and all(size == 1 or given == want for size, given, want in apart)


DEFAULT = Config(
    {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "SPLIT": 1}, num_warps=4, num_stages=3
)
"""Runs on every target and dtype: 48 KiB of shared memory at most."""

_LEAST_DEPTH = 4 * FEWEST


def space() -> Space:
    """Build the space: some 30 to 400 configs a layer."""
    axes = {
        "BLOCK_M": (64, 128, 256),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (32, 64, 128),
        "SPLIT": tuple(range(1, MOST_PARTS + 1)),
        "num_warps": (4, 8),
        "num_stages": (1, 2, 3, 4, 5),
    }
    return (
        Space(axes, default=DEFAULT)
        .where(
            "a thread holds 32 to 128 accumulators, or 16 of few filters",
            lambda BLOCK_M, BLOCK_N, num_warps: (
                (16 if BLOCK_N == 32 else 32) <= BLOCK_M * BLOCK_N // (num_warps * 32) <= 128
            ),
        )
        .where(
            "a tile is under twice as wide as there are filters, and 32 wide for as few",
            lambda BLOCK_N, filters: (
                filters <= 32 if BLOCK_N == 32 else BLOCK_N == 64 or 2 * filters > BLOCK_N
            ),
        )
        .where("a step is as deep as its loads are long", _is_of_use)
        .where(
            "one step needs one stage",
            lambda BLOCK_K, num_stages, channels: num_stages > 1 or FEWEST <= channels <= BLOCK_K,
        )
        .where("few tiles with deep sums are shared", _may_split)
    )


def _is_of_use(BLOCK_K: int, num_stages: int, channels: int) -> bool:
    if channels < FEWEST:  # of which a step has several taps
        return BLOCK_K <= 64
    if BLOCK_K == 32:
        return channels < 64 or num_stages == 3
    # More stages of 128 channels leave no room for a second program on a multiprocessor.
    return 2 * channels > BLOCK_K and (BLOCK_K == 64 or num_stages <= 3)


def _may_split(
    SPLIT: int, batch: int, height: int, width: int, channels: int, filters: int
) -> bool:
    return SPLIT == 1 or (
        channels >= _LEAST_DEPTH and sums_bytes(batch, height, width, filters) > 0
    )


def grid(values: Mapping[str, Any]) -> tuple[int, int]:
    """Give the grid: a program a tile, and along the second axis those that share one."""
    pixels = values["batch"] * values["out_height"] * values["out_width"]
    tiles = triton.cdiv(pixels, values["BLOCK_M"])
    tiles *= triton.cdiv(values["filters"], values["BLOCK_N"]) * values["GROUPS"]
    return tiles, 1 if values["sums_ptr"] is None else values["SPLIT"]


def layer(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    window: Window,
    groups: int = 1,
) -> Layer:
    """Bring a convolution into the kernel's layout; tensors laid out otherwise are copied.

    Raises:
        ValueError: the window is larger than the padded image, or there are too many pixels.
    """
    size = (weight.shape[1], x.shape[2], x.shape[3])
    by_rows = weight.shape[1] < FEWEST and weight.shape[3] > 1 and window.dilation[1] == 1
    by_rows = by_rows and groups == 1
    extent = window.out_size(x.shape[2:], weight.shape[2:])
    _check_pixels(x.shape[0], *extent)
    y = torch.empty((x.shape[0], *extent, weight.shape[0]), device=x.device, dtype=x.dtype)
    bias = None if bias is None else bias.contiguous()
    if by_rows:
        x, weight = _rows_of_taps(x, weight, window, extent[1])
        window = Window((window.stride[0], 1), (0, 0), (window.dilation[0], 1))
    else:
        x, weight = dense_pixels(x), pixels_first(weight)
    return Layer(x, weight, bias, y, window, size, groups)


def _check_pixels(batch: int, height: int, width: int) -> None:
    """Refuse more pixels than the kernel counts in 32 bits, with those past the last one."""
    if batch * height * width > _MOST_PIXELS:
        raise ValueError(
            f"conv2d: the result is {batch} images of {height} x {width}; it must have "
            f"{_MOST_PIXELS} pixels at most: divide the batch"
        )


def _rows_of_taps(
    x: torch.Tensor, weight: torch.Tensor, window: Window, out_width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Join channels and taps across in one axis, for few channels: a window's row is contiguous.

    In a padded copy, whose pixels are 4 channels apart or a multiple of 8, such rows begin at
    multiples of 8 bytes, and need no masks at the image's edges. They overlap: nothing is kept
    twice. What follows a row is masked and not multiplied by 0, which leaves NaN as it is.
    """
    (filters, channels, taps_h, taps_w), (top, left) = weight.shape, window.padding
    pitch = 4 if channels <= 4 else triton.cdiv(channels, 8) * 8
    cols = triton.cdiv(x.shape[3] + 2 * left, 2) * 2
    image = framed(x, (x.shape[2] + 2 * top, cols, pitch), (top, left))
    strides = image.stride(0), 1, image.stride(1), window.stride[1] * pitch
    rows = image.as_strided((x.shape[0], taps_w * pitch, image.shape[1], out_width), strides)
    spread = framed(weight, (taps_h, taps_w, pitch), (0, 0))
    return rows, spread.view(filters, taps_h, 1, taps_w * pitch)


def sums_bytes(batch: int, height: int, width: int, filters: int) -> int:
    """Give the bytes for partial sums of such a result; 0 where it has tiles enough.

    Whole blocks of the largest hold as many of any other; all launches of a key agree.
    """
    pixels = triton.next_power_of_2(batch) * height * width
    blocks = triton.cdiv(pixels, _LARGEST_BLOCK) * triton.cdiv(filters, _LARGEST_BLOCK)
    size = MOST_PARTS * blocks * _LARGEST_BLOCK**2 * 4
    return size if size <= SUMS_BYTES else 0


def window_arguments(taps: Sequence[int], window: Window) -> dict[str, int]:
    """Give taps, stride, padding and dilation, down and across, by parameter name."""
    pairs = {"TAPS": taps, "STRIDE": window.stride, "PAD": window.padding}
    pairs |= {"DILATION": window.dilation}
    return {
        f"{name}_{axis}": value
        for name, pair in pairs.items()
        for axis, value in zip("HW", pair, strict=True)
    }


def pixel_strides(x: torch.Tensor, depth: int) -> dict[str, int]:
    """Give an image's strides by parameter name; one that is never taken need not be divisible."""
    axes = {"stride_xn": 0, "stride_xh": 2, "stride_xw": 3}
    return {name: x.stride(a) if x.shape[a] > 1 else depth for name, a in axes.items()}


def dense_pixels(x: torch.Tensor) -> torch.Tensor:
    """Return an image whose pixels have no gaps between channels; copy any other."""
    if x.stride(1) != 1 and x.shape[1] > 1:
        return x.contiguous(memory_format=torch.channels_last)
    return x


def pixels_first(image: torch.Tensor) -> torch.Tensor:
    """Return an image as (batch, height, width, channels) without gaps; copy any other layout."""
    return image.permute(0, 2, 3, 1).contiguous()
