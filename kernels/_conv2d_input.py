"""The gradient of a convolution's image: for each pixel a product by the taps that reach it.

dx[n, h, w, c] = sum over f, r, s of weight[f, r, s, c]
* dy[n, (h + padding - r * dilation) / stride, (w + padding - s * dilation) / stride, f],
over the taps for which both divisions leave no remainder. Pixels of one remainder by the stride, a
phase, see the same taps: a program takes BLOCK_M pixels of a phase and BLOCK_N channels, and walks
those taps alone. One launch has the tiles of all phases, and reads the weights as they lie.
Where tiles are few, SPLIT programs share one, as in the forward kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.kernels._common import multiple, vouched
from asmtune.kernels._conv2d import INPUT, Made, Window, gradient, window_of, within
from asmtune.kernels._conv2d_host import (
    gradient_arguments,
    gradient_tuners,
    pixels_first,
    sums_bytes,
)
from asmtune.kernels._split import SUMS_BYTES, gathered, workspace
from asmtune.runtime.replay_calls import replay_calls

_PLAIN = ["batch", "height", "width", "depth", "filters", "out_height", "out_width"]


@triton.jit
def first_tap(place, TAPS: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr):
    """Return the first tap that reaches a pixel of a padded image; TAPS if none does."""
    first = place * 0 + TAPS
    for back in tl.static_range(TAPS):
        tap = TAPS - 1 - back
        first = tl.where((place - tap * DILATION) % STRIDE == 0, tap, first)
    return first


@triton.jit
def next_block(u, v, f, filters, taps_w, BLOCK_K: tl.constexpr):
    """Return the next block's tap of those of the phase, and its first filter."""
    f += BLOCK_K
    u = tl.where((f >= filters) & (v == taps_w - 1), u + 1, u)
    v = tl.where(f >= filters, tl.where(v == taps_w - 1, 0, v + 1), v)
    return u, v, tl.where(f >= filters, 0, f)


@triton.jit(do_not_specialize=_PLAIN)
def kernel(
    dy_ptr, weight_ptr, dx_ptr, sums_ptr, count_ptr,
    batch, height, width, depth, filters, out_height, out_width,
    TAPS_H: tl.constexpr, TAPS_W: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr, PAD_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    APART_H: tl.constexpr, APART_W: tl.constexpr,
    GROUPS: tl.constexpr, MULTIPLE: tl.constexpr, OUT_MULTIPLE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_M pixels of a phase by BLOCK_N channels, or a SPLIT-th of their sums.

    Of the taps that reach a phase, each is APART after the one before.
    """
    PARTS: tl.constexpr = 1 if sums_ptr is None else SPLIT
    FULL: tl.constexpr = OUT_MULTIPLE % BLOCK_K == 0
    WIDE: tl.constexpr = MULTIPLE % BLOCK_N == 0
    INSIDE: tl.constexpr = TAPS_H * TAPS_W == 1 and STRIDE_H * STRIDE_W == 1 and PAD_H + PAD_W == 0
    filters, depth = vouched(filters, OUT_MULTIPLE), vouched(depth, MULTIPLE)
    tile, part = tl.program_id(0), tl.program_id(1)
    local = tile % (tl.num_programs(0) // (GROUPS * STRIDE_H * STRIDE_W))
    phase = tile // (tl.num_programs(0) // (GROUPS * STRIDE_H * STRIDE_W))
    group, phase = phase // (STRIDE_H * STRIDE_W), phase % (STRIDE_H * STRIDE_W)
    top, left = phase // STRIDE_W, phase % STRIDE_W
    # Tiles of the same pixels are neighbours, so that dy comes from memory once, then from L2.
    tiles_n = tl.cdiv(depth, BLOCK_N)
    n = local % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    rows, cols = tl.cdiv(height, STRIDE_H), tl.cdiv(width, STRIDE_W)
    pixel = local // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    # Past the last pixel the last is taken again: no mask is needed along the pixels.
    known = tl.minimum(pixel, batch * rows * cols - 1)
    image, row, col = known // (rows * cols), known % (rows * cols) // cols, known % cols
    pitch, length = filters * GROUPS, TAPS_H * TAPS_W * depth
    dy_rows = dy_ptr + group * filters
    dy_rows += ((image.to(tl.int64) * out_height + row) * out_width + col) * pitch
    k = tl.arange(0, BLOCK_K)
    w_rows = weight_ptr + group.to(tl.int64) * filters * length + k[:, None] * length + n
    first_r = first_tap(top + PAD_H, TAPS_H, STRIDE_H, DILATION_H)
    first_s = first_tap(left + PAD_W, TAPS_W, STRIDE_W, DILATION_W)
    taps_h, taps_w = tl.cdiv(TAPS_H - first_r, APART_H), tl.cdiv(TAPS_W - first_s, APART_W)
    blocks = tl.cdiv(filters, BLOCK_K)
    each = tl.cdiv(taps_h * taps_w * blocks, PARTS)
    begin, last = part * each, tl.minimum(part * each + each, taps_h * taps_w * blocks)
    across = tl.maximum(taps_w, 1)
    u, v, f = begin // blocks // across, begin // blocks % across, begin % blocks * BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(begin, last):
        r, s = first_r + u * APART_H, first_s + v * APART_W
        down = (top + PAD_H - r * DILATION_H) // STRIDE_H  # no remainder
        over = (left + PAD_W - s * DILATION_W) // STRIDE_W
        dy_block = dy_rows + ((down * out_width + over).to(tl.int64) * pitch + f) + k[None, :]
        w_block = w_rows + (f.to(tl.int64) * length + (r * TAPS_W + s) * depth)
        there = within(row + down, out_height) & within(col + over, out_width)
        if FULL and INSIDE:
            tile_dy = tl.load(dy_block)
        elif FULL:
            tile_dy = tl.load(dy_block, mask=there, other=0.0)
        else:
            tile_dy = tl.load(dy_block, mask=there & (k < filters - f)[None, :], other=0.0)
        if FULL and WIDE:
            tile_w = tl.load(w_block)
        else:
            tile_w = tl.load(w_block, (k < filters - f)[:, None] & (n < depth), other=0.0)
        acc = tl.dot(tile_dy, tile_w, acc)
        u, v, f = next_block(u, v, f, filters, taps_w, BLOCK_K)
    complete = True
    if PARTS > 1:
        acc, complete = gathered(acc, sums_ptr, count_ptr, tile, part, PARTS)
    if complete:
        h, w = row * STRIDE_H + top, col * STRIDE_W + left
        inside = (pixel < batch * rows * cols) & (h < height) & (w < width) & (n < depth)
        dx_rows = ((image.to(tl.int64) * height + h) * width + w) * (depth * GROUPS)
        dx = dx_ptr + dx_rows + group * depth + n
        tl.store(dx, acc.to(dx_ptr.dtype.element_ty), mask=inside)


DEFAULT = Config(
    {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "SPLIT": 1}, num_warps=4, num_stages=3
)
"""Runs on every target and dtype: 48 KiB of shared memory at most."""


def space() -> Space:
    """Build the space: pixels and channels of a tile, filters of a step, SPLIT, warps, stages."""
    axes = {
        "BLOCK_M": (64, 128, 256),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (32, 64),
        "SPLIT": (1, 2, 3, 4),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    }
    return (
        Space(axes, default=DEFAULT)
        .where(
            "a thread holds 32 to 128 accumulators, or 16 of few channels",
            lambda BLOCK_M, BLOCK_N, num_warps: (
                (16 if BLOCK_N == 32 else 32) <= BLOCK_M * BLOCK_N // (num_warps * 32) <= 128
            ),
        )
        .where(
            "a tile is under twice as wide as there are channels, and 32 wide for as few",
            lambda BLOCK_N, depth: (
                depth <= 32 if BLOCK_N == 32 else BLOCK_N == 64 or 2 * depth > BLOCK_N
            ),
        )
        .where(
            "a step is no deeper than there are filters",
            lambda BLOCK_K, filters: BLOCK_K == 32 or 2 * filters > BLOCK_K,
        )
        .where("few tiles with deep sums are shared", _may_split)
    )


_LEAST_FILTERS = 128


def _may_split(
    SPLIT: int, batch: int, height: int, width: int, depth: int, filters: int, GROUPS: int,
    STRIDE_H: int, STRIDE_W: int,
) -> bool:  # fmt: skip
    if SPLIT == 1 or filters < _LEAST_FILTERS:
        return SPLIT == 1
    return _room((batch, height, width), depth, GROUPS, (STRIDE_H, STRIDE_W)) > 0


def _room(image: tuple[int, int, int], depth: int, groups: int, stride: tuple[int, int]) -> int:
    """Give the bytes for partial sums of tiles of all phases; 0 where there are tiles enough.

    `image` is batch, height and width, `depth` the channels of a group.
    """
    batch, height, width = image
    rows, cols = triton.cdiv(height, stride[0]), triton.cdiv(width, stride[1])
    size = groups * stride[0] * stride[1] * sums_bytes(batch, rows, cols, depth)
    # Memory is kept by its size: few sizes serve all layers.
    return int(triton.next_power_of_2(size)) if 0 < size <= SUMS_BYTES else 0


def grid(values: Mapping[str, Any]) -> tuple[int, int]:
    """Give the grid: a program a tile, and along the second axis those that share one."""
    rows = triton.cdiv(values["height"], values["STRIDE_H"])
    cols = triton.cdiv(values["width"], values["STRIDE_W"])
    tiles = triton.cdiv(values["batch"] * rows * cols, values["BLOCK_M"])
    tiles *= triton.cdiv(values["depth"], values["BLOCK_N"]) * values["GROUPS"]
    tiles *= values["STRIDE_H"] * values["STRIDE_W"]
    return tiles, 1 if values["sums_ptr"] is None else values["SPLIT"]


def arguments_of(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, window: Window, groups: int
) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the result."""
    dx = torch.empty(
        (x.shape[0], x.shape[2], x.shape[3], x.shape[1]), dtype=x.dtype, device=x.device
    )
    sizes = gradient_arguments(dy, x, weight, window, groups)
    image = x.shape[0], x.shape[2], x.shape[3]
    room = _room(image, weight.shape[1], groups, window.stride)
    sums, counts = workspace(x.device, room) if room else (None, None)
    apart = (s // math.gcd(s, d) for s, d in zip(window.stride, window.dilation, strict=True))
    return {
        "dy_ptr": pixels_first(dy),
        "weight_ptr": pixels_first(weight),
        "dx_ptr": dx,
        "sums_ptr": sums,
        "count_ptr": counts,
        **sizes,
        **dict(zip(("APART_H", "APART_W"), apart, strict=True)),
        "MULTIPLE": multiple(weight.shape[1]),
    }


def _made(given: dict[str, Any]) -> Made:
    """Call cuDNN with the arguments of a launch by name."""
    dy, weight, dx = (given[f"{n}_ptr"].permute(0, 3, 1, 2) for n in ("dy", "weight", "dx"))
    return Made(gradient(INPUT, dy, dx, weight, window_of(given), given["GROUPS"]), dx)


def _cudnn(dy: Any, x: Any, weight: Any, window: Any, groups: int, *_: bool) -> torch.Tensor:
    """Compute `input_gradient` by cuDNN."""
    return gradient(INPUT, dy, x, weight, Window.of_numbers(window), groups)


@replay_calls(alternatives={INPUT: _cudnn})
def input_gradient(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    window: tuple[int, ...],
    groups: int,
    vendor: bool,
) -> torch.Tensor:
    """Compute the gradient of a convolution's image by the fastest way.

    Args:
        dy: the gradient of the result, (batch, filters, out_height, out_width), on a GPU.
        x: the image, of which the shape is used.
        weight: the weights, of the same dtype.
        window: the numbers of stride, padding and dilation.
        groups: groups of channels.
        vendor: call cuDNN where tuning has found it faster.

    Returns:
        A tensor of x's shape and dtype in `torch.channels_last`.
    """
    arguments = arguments_of(dy, x, weight, Window.of_numbers(window), groups)
    dx: torch.Tensor = arguments["dx_ptr"]
    if not dy.numel():
        dx.zero_()
    elif dx.numel():
        (_tuned if vendor else _alone)[grid](**arguments)
    return dx.permute(0, 3, 1, 2)


_alone, _tuned = gradient_tuners(kernel, INPUT, space, _made)
