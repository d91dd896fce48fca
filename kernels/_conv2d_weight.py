"""The gradient of a convolution's weights: for each tap a product of results' gradients by pixels.

dweight[f, r, s, c] = sum over n, i, j of dy[n, i, j, f]
* x[n, i * stride + r * dilation - padding, j * stride + s * dilation - padding, c].
Sums over all pixels are long and tiles are few, so that programs share a tile's pixels. Each
leaves its part in fp32, and PyTorch adds the parts: results repeat bit by bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.keys.buckets import pow2
from asmtune.core.space.space import Space
from asmtune.kernels._common import multiple, processors, vouched
from asmtune.kernels._conv2d import within
from asmtune.kernels._conv2d_window import Window
from asmtune.runtime.decorator import asm_autotune

_PLAIN = [
    *("batch", "height", "width", "depth", "filters", "out_height", "out_width", "parts"),
    *("stride_xn", "stride_xh", "stride_xw"),
]
_TILE = 64
_LEAST_PIXELS = 1024


@triton.jit(do_not_specialize=_PLAIN)
def kernel(
    dy_ptr, x_ptr, sums_ptr,
    batch, height, width, depth, filters, out_height, out_width, parts,
    stride_xn, stride_xh, stride_xw,
    TAPS_H: tl.constexpr, TAPS_W: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr, PAD_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    GROUPS: tl.constexpr, MULTIPLE: tl.constexpr, OUT_MULTIPLE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_M filters by BLOCK_N channels of one tap a program, over part of the pixels."""
    filters, depth = vouched(filters, OUT_MULTIPLE), vouched(depth, MULTIPLE)
    stride_xn, stride_xh = vouched(stride_xn, MULTIPLE), vouched(stride_xh, MULTIPLE)
    stride_xw = vouched(stride_xw, MULTIPLE)
    tiles_m, tiles_n = tl.cdiv(filters, BLOCK_M), tl.cdiv(depth, BLOCK_N)
    tile, part = tl.program_id(0), tl.program_id(1)
    f = tile // tiles_n % tiles_m * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    tap = tile // (tiles_n * tiles_m)
    group, tap = tap // (TAPS_H * TAPS_W), tap % (TAPS_H * TAPS_W)
    down = tap // TAPS_W * DILATION_H - PAD_H
    across = tap % TAPS_W * DILATION_W - PAD_W
    pitch, size = filters * GROUPS, out_height * out_width
    each = tl.cdiv(tl.cdiv(batch * size, parts), BLOCK_K) * BLOCK_K
    last = tl.minimum(part * each + each, batch * size)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(part * each, last, BLOCK_K):
        pixel = start + tl.arange(0, BLOCK_K)
        image, place = pixel // size, pixel % size
        row = place // out_width * STRIDE_H + down
        col = place % out_width * STRIDE_W + across
        there = (pixel < last) & within(row, height) & within(col, width)
        x = x_ptr + image.to(tl.int64) * stride_xn + row.to(tl.int64) * stride_xh
        x += col.to(tl.int64) * stride_xw + group * depth
        dy = dy_ptr + pixel.to(tl.int64) * pitch + group * filters
        tile_x = tl.load(x[:, None] + c[None, :], there[:, None] & (c < depth)[None, :], other=0.0)
        known = there[:, None] & (f < filters)[None, :]
        tile_dy = tl.load(dy[:, None] + f[None, :], mask=known, other=0.0)
        acc = tl.dot(tile_dy.T, tile_x, acc)
    filter_taps = (group * filters + f).to(tl.int64) * (TAPS_H * TAPS_W) + tap
    sums = sums_ptr + part.to(tl.int64) * pitch * (TAPS_H * TAPS_W * depth)
    inside = (f < filters)[:, None] & (c < depth)[None, :]
    tl.store(sums + filter_taps[:, None] * depth + c[None, :], acc, mask=inside)


DEFAULT = Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3)
"""Runs on every target and dtype: 48 KiB of shared memory at most."""


def space() -> Space:
    """Build the space: filters and channels of a tile, pixels of a step, warps and stages."""
    axes = {
        "BLOCK_M": (32, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (32, 64),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    }
    return (
        Space(axes, default=DEFAULT)
        .where(
            "a thread holds 8 to 64 sums",
            lambda BLOCK_M, BLOCK_N, num_warps: 8 <= BLOCK_M * BLOCK_N // (num_warps * 32) <= 64,
        )
        .where(
            "a tile is under twice as large as there are filters and channels, or 64",
            lambda BLOCK_M, BLOCK_N, filters, depth: (
                _is_of_use(BLOCK_M, filters) and _is_of_use(BLOCK_N, depth)
            ),
        )
    )


def _is_of_use(block: int, extent: int) -> bool:
    return extent <= 32 if block == 32 else block == _TILE or 2 * extent > block


def grid(values: Mapping[str, Any]) -> tuple[int, int]:
    """Give the grid: a program a tile, and along the second axis those that share one."""
    tiles = triton.cdiv(values["filters"], values["BLOCK_M"])
    tiles *= triton.cdiv(values["depth"], values["BLOCK_N"])
    return tiles * values["TAPS_H"] * values["TAPS_W"] * values["GROUPS"], values["parts"]


def weight_gradient(
    dy: torch.Tensor, x: torch.Tensor, taps: tuple[int, int], window: Window, groups: int
) -> torch.Tensor:
    """Compute the gradient of a convolution's weights by the tuned kernel.

    Args:
        dy: (batch, filters, out_height, out_width), the gradient of the result, on a GPU.
        x: (batch, channels, height, width), of the same dtype.
        taps: taps of the weights, down and across.
        window: stride, padding and dilation.
        groups: groups of channels.

    Returns:
        (filters, channels / groups, taps_h, taps_w) in `torch.channels_last`, of x's dtype.
    """
    arguments = arguments_of(dy, x, taps, window, groups)
    sums: torch.Tensor = arguments["sums_ptr"]
    if not dy.numel():
        sums.zero_()
    elif sums.numel():
        _tuned[grid](**arguments)
    return sums.sum(0).to(x.dtype).permute(0, 3, 1, 2)


def arguments_of(
    dy: torch.Tensor, x: torch.Tensor, taps: tuple[int, int], window: Window, groups: int
) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the parts of the sums."""
    dy = dy.permute(0, 2, 3, 1).contiguous()
    if x.stride(1) != 1 and x.shape[1] > 1:
        x = x.contiguous(memory_format=torch.channels_last)
    batch, out_height, out_width, filters = dy.shape
    depth = x.shape[1] // groups
    tiles = triton.cdiv(filters // groups, _TILE) * triton.cdiv(depth, _TILE)
    shared = 2 * processors(x.device) // max(1, tiles * taps[0] * taps[1] * groups)
    most = triton.cdiv(batch * out_height * out_width, _LEAST_PIXELS)
    parts = max(1, min(shared, most))
    sums = torch.empty((parts, filters, *taps, depth), dtype=torch.float32, device=x.device)
    strides = [x.stride(a) if x.shape[a] > 1 else depth for a in (0, 2, 3)]
    pairs = {"TAPS": taps, "STRIDE": window.stride, "PAD": window.padding}
    pairs |= {"DILATION": window.dilation}
    sizes = {"batch": batch, "height": x.shape[2], "width": x.shape[3], "depth": depth}
    sizes |= {"filters": filters // groups, "out_height": out_height, "out_width": out_width}
    return {
        "dy_ptr": dy,
        "x_ptr": x,
        "sums_ptr": sums,
        **sizes,
        "parts": parts,
        **dict(zip(("stride_xn", "stride_xh", "stride_xw"), strides, strict=True)),
        **{f"{name}_H": down for name, (down, _) in pairs.items()},
        **{f"{name}_W": across for name, (_, across) in pairs.items()},
        "GROUPS": groups,
        "MULTIPLE": multiple(depth, *strides),
        "OUT_MULTIPLE": multiple(filters // groups),
    }


_tuned = asm_autotune(
    space=space,
    key=[
        *(pow2("batch"), "height", "width", "depth", "filters", "TAPS_H", "TAPS_W", "GROUPS"),
        *("STRIDE_H", "STRIDE_W", "DILATION_H", "DILATION_W", "PAD_H", "PAD_W", "MULTIPLE"),
    ],
)(kernel)
