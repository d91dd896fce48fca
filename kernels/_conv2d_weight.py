"""The gradient of a convolution's weights: for each tap a product of results' gradients by pixels.

dweight[f, r, s, c] = sum over n, i, j of dy[n, i, j, f]
* x[n, i * stride + r * dilation - padding, j * stride + s * dilation - padding, c].
Sums over all pixels are long and tiles are few, so that programs share a tile's pixels. Each
leaves its part in fp32. Parts are added in groups of FAN, each by the last of its programs to
arrive, and the groups' sums by the last of those, always in the same order: results repeat bit by
bit, and a chain of additions is as long as FAN and the number of groups. All of it is one launch,
so that tuning times what a call takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.kernels._common import multiple, processors, vouched
from asmtune.kernels._conv2d import WEIGHT, Made, Window, gradient, window_of, within
from asmtune.kernels._conv2d_host import (
    dense_pixels,
    gradient_arguments,
    gradient_tuners,
    pixel_strides,
    pixels_first,
)
from asmtune.kernels._split import SUMS_BYTES, workspace
from asmtune.runtime.replay_calls import replay_calls

_PLAIN = [
    *("batch", "height", "width", "depth", "filters", "out_height", "out_width", "programs"),
    *("stride_xn", "stride_xh", "stride_xw"),
]
_TILE = 64
_LEAST_PIXELS = 512

FAN = tl.constexpr(8)
"""Parts that one program adds up: sums of 64 parts are two chains of 8."""


@triton.jit
def gathered_by_groups(acc, sums_ptr, count_ptr, tile, part, parts):
    """Store a part of a tile's sum; the last of each group to arrive adds it, then all groups.

    No program waits for another, so that any number of them may run at a time.

    Args:
        acc: this part.
        sums_ptr: memory for all parts of all tiles and the sums of their groups.
        count_ptr: how many parts of each group, and groups of each tile, are there; 0 before, and
            0 again after.
        tile: which tile.
        part: which part.
        parts: of each tile.

    Returns:
        The sum, and whether this program has it.
    """
    BLOCK_M: tl.constexpr = acc.shape[0]
    BLOCK_N: tl.constexpr = acc.shape[1]
    groups, group = tl.cdiv(parts, FAN), part // FAN
    members = tl.minimum(parts - group * FAN, FAN)
    m, n = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    sums = sums_ptr.to(tl.pointer_type(acc.dtype), bitcast=True)
    sums += tile.to(tl.int64) * ((parts + groups) * (BLOCK_M * BLOCK_N))
    sums += m[:, None] * BLOCK_N + n[None, :]
    counts = count_ptr + tile * (groups + 1)
    # Past L1, which may hold what another program's part was before.
    tl.store(sums + part * (BLOCK_M * BLOCK_N), acc, cache_modifier=".cg")
    # All threads' parts are written before one thread says so.
    tl.debug_barrier()
    arrived = tl.atomic_add(counts + group, 1, sem="acq_rel", scope="gpu")
    complete = arrived == members - 1
    if complete:
        first = sums + group * (FAN * BLOCK_M * BLOCK_N)
        acc = tl.load(first, cache_modifier=".cg")
        for other in range(1, members):
            acc += tl.load(first + other * (BLOCK_M * BLOCK_N), cache_modifier=".cg")
        tl.store(counts + group, 0)
        if groups > 1:
            of_groups = sums + parts * (BLOCK_M * BLOCK_N)
            tl.store(of_groups + group * (BLOCK_M * BLOCK_N), acc, cache_modifier=".cg")
            tl.debug_barrier()
            arrived = tl.atomic_add(counts + groups, 1, sem="acq_rel", scope="gpu")
            complete = arrived == groups - 1
            if complete:
                acc = tl.load(of_groups, cache_modifier=".cg")
                for other in range(1, groups):
                    acc += tl.load(of_groups + other * (BLOCK_M * BLOCK_N), cache_modifier=".cg")
                tl.store(counts + groups, 0)
    return acc, complete


@triton.jit(do_not_specialize=_PLAIN)
def kernel(
    dy_ptr, x_ptr, dweight_ptr, sums_ptr, count_ptr,
    batch, height, width, depth, filters, out_height, out_width,
    programs,  # noqa: ARG001 (of the grid)
    stride_xn, stride_xh, stride_xw,
    TAPS_H: tl.constexpr, TAPS_W: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr, PAD_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    GROUPS: tl.constexpr, MULTIPLE: tl.constexpr, OUT_MULTIPLE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    WAVES: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_M filters by BLOCK_N channels of one tap a program, over part of the pixels.

    With WAVES = 0 no tile is shared: its sum is one chain, and the memory for parts is not used.
    """
    filters, depth = vouched(filters, OUT_MULTIPLE), vouched(depth, MULTIPLE)
    stride_xn, stride_xh = vouched(stride_xn, MULTIPLE), vouched(stride_xh, MULTIPLE)
    stride_xw = vouched(stride_xw, MULTIPLE)
    tiles_m, tiles_n = tl.cdiv(filters, BLOCK_M), tl.cdiv(depth, BLOCK_N)
    tile, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
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
    complete = part == 0
    if WAVES > 0 and parts > 1:
        acc, complete = gathered_by_groups(acc, sums_ptr, count_ptr, tile, part, parts)
    if complete:
        filter_taps = (group * filters + f).to(tl.int64) * (TAPS_H * TAPS_W) + tap
        inside = (f < filters)[:, None] & (c < depth)[None, :]
        dweight = dweight_ptr + filter_taps[:, None] * depth + c[None, :]
        tl.store(dweight, acc.to(dweight_ptr.dtype.element_ty), mask=inside)


DEFAULT = Config(
    {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "WAVES": 0}, num_warps=4, num_stages=3
)
"""Runs on every target and dtype: 48 KiB of shared memory at most.

No tile is shared, so that tuning takes what other configs write in the memory for parts for
scratch: cuDNN writes nothing there.
"""


def space() -> Space:
    """Build the space: filters and channels of a tile, pixels of a step, programs a processor."""
    axes = {
        "BLOCK_M": (32, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "BLOCK_K": (32, 64),
        "WAVES": (0, 1, 2, 4),
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
    """Give the grid: a program a tile, and along the second axis those that share one.

    WAVES times as many programs as multiprocessors, where pixels and memory for parts suffice.
    """
    tiles = triton.cdiv(values["filters"], values["BLOCK_M"])
    tiles *= triton.cdiv(values["depth"], values["BLOCK_N"])
    tiles *= values["TAPS_H"] * values["TAPS_W"] * values["GROUPS"]
    pixels = values["batch"] * values["out_height"] * values["out_width"]
    room = SUMS_BYTES // (tiles * values["BLOCK_M"] * values["BLOCK_N"] * 4)
    parts = min(
        values["WAVES"] * values["programs"] // tiles,
        triton.cdiv(pixels, _LEAST_PIXELS),
        (room - 1) * FAN.value // (FAN.value + 1),
    )
    return tiles, max(1, parts)


def arguments_of(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, window: Window, groups: int
) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the result and the parts of sums."""
    x = dense_pixels(x)
    filters, depth, *taps = weight.shape
    dweight = torch.empty((filters, *taps, depth), dtype=x.dtype, device=x.device)
    sums, counts = workspace(x.device, SUMS_BYTES)
    strides = pixel_strides(x, depth)
    return {
        "dy_ptr": pixels_first(dy),
        "x_ptr": x,
        "dweight_ptr": dweight,
        "sums_ptr": sums,
        "count_ptr": counts,
        "programs": processors(x.device),
        **gradient_arguments(dy, x, weight, window, groups),
        **strides,
        "MULTIPLE": multiple(depth, *strides.values()),
    }


def _made(given: dict[str, Any]) -> Made:
    """Call cuDNN with the arguments of a launch by name."""
    dy, dweight = (given[f"{name}_ptr"].permute(0, 3, 1, 2) for name in ("dy", "dweight"))
    options = window_of(given), given["GROUPS"]
    return Made(gradient(WEIGHT, dy, given["x_ptr"], dweight, *options), dweight)


def _cudnn(dy: Any, x: Any, weight: Any, window: Any, groups: int, *_: bool) -> torch.Tensor:
    """Compute `weight_gradient` by cuDNN."""
    return gradient(WEIGHT, dy, x, weight, Window.of_numbers(window), groups)


@replay_calls(alternatives={WEIGHT: _cudnn})
def weight_gradient(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    window: tuple[int, ...],
    groups: int,
    vendor: bool,
) -> torch.Tensor:
    """Compute the gradient of a convolution's weights by the fastest way.

    The arguments are those of `input_gradient`: here the shape of the weights is used.

    Returns:
        A tensor of the weights' shape in `torch.channels_last`, of x's dtype.
    """
    arguments = arguments_of(dy, x, weight, Window.of_numbers(window), groups)
    dweight: torch.Tensor = arguments["dweight_ptr"]
    if not dy.numel():
        dweight.zero_()
    elif dweight.numel():
        (_tuned if vendor else _alone)[grid](**arguments)
    return dweight.permute(0, 3, 1, 2)


_alone, _tuned = gradient_tuners(kernel, WEIGHT, space, _made)
