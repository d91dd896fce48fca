"""Groups of a matrix's rows and columns: the tiles that hold or share them, and their amax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.kernels._common import row_sizes, vouched
from asmtune.kernels._split import workspace
from asmtune.runtime.decorator import asm_autotune

NARROWEST = 128
"""Least columns of a tile: what a warp loads at once of halves."""

_MOST_PARTS = 256
"""Most programs that share the amax of a group; all groups' together are as many or more. On an
H200 512 took 48 us for 117 MB by column, and 256 took 44."""

_MOST_TILES = 32
"""Most tiles of a group that one program reads alone."""

_TILE = 8192
"""Elements of such a tile, 64 a thread."""


@triton.jit
def tiles_along(extent, GROUP: tl.constexpr, PAD: tl.constexpr, TILE: tl.constexpr):
    """Count the tiles of groups along an axis, and those of each; GROUP is 0 for the axis."""
    COUNT: tl.constexpr = TILE // PAD if TILE > PAD else 1
    EACH: tl.constexpr = PAD if TILE > PAD else TILE
    size = extent if GROUP == 0 else GROUP
    return tl.cdiv(tl.cdiv(extent, size), COUNT), tl.cdiv(size, EACH)


@triton.jit
def spread(place, part, extent, GROUP: tl.constexpr, PAD: tl.constexpr, TILE: tl.constexpr):
    """Return what a tile has along an axis: its groups, and its elements by group.

    Args:
        place: number of its groups.
        part: number of the tile among those of a group, if a group is larger.
        extent: of the axis.
        GROUP: elements of a group; 0 for all.
        PAD: the next power of two.
        TILE: elements of a tile.

    Returns:
        Groups (COUNT,) and whether they are there; elements (COUNT, EACH) and whether they are.
    """
    COUNT: tl.constexpr = TILE // PAD if TILE > PAD else 1
    EACH: tl.constexpr = PAD if TILE > PAD else TILE
    within = part * EACH + tl.arange(0, EACH)[None, :]
    if GROUP == 0:
        group = tl.zeros((COUNT,), tl.int32)
        element = within + group[:, None]
        inside = element < extent
    else:
        group = place * COUNT + tl.arange(0, COUNT)
        element = group[:, None] * GROUP + within
        inside = element < extent
        if GROUP % EACH != 0:
            inside = inside & (within < GROUP)
    return group, group * GROUP < extent, element, inside


@triton.jit
def load_groups(x_ptr, stride, row, col, FULL: tl.constexpr):
    """Load elements (groups, rows, groups, columns) in fp32, 0 outside; return places, mask too."""
    at_row = row[2].to(tl.int64)[:, :, None, None]
    at_col = col[2][None, None, :, :]
    inside = row[3][:, :, None, None]
    if not FULL:
        inside = inside & col[3][None, None, :, :]
    x = tl.load(x_ptr + at_row * stride + at_col, mask=inside, other=0.0)
    return x.to(tl.float32), at_row, at_col, inside


@triton.jit
def magnitudes(x):
    """Return magnitudes of finite values, and 0 for others, which have no part in a scale."""
    size = tl.abs(x)
    return tl.where(size < float("inf"), size, 0.0)


@triton.jit(do_not_specialize=["rows", "cols", "stride_x"])
def amax_kernel(
    x_ptr,
    amax_ptr,
    parts_ptr,
    count_ptr,
    rows,
    cols,
    stride_x,
    MULTIPLE: tl.constexpr,
    GROUP_ROWS: tl.constexpr,
    GROUP_COLS: tl.constexpr,
    PAD_ROWS: tl.constexpr,
    PAD_COLS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Compute the amax of groups, (row groups, column groups).

    Several programs share a group where AHEAD is above 0, each every so many-th of its tiles. The
    last one to come takes the largest of all parts, so many at a time. All programs together go
    from the last tile to the first: what they read last is in L2 still when another kernel reads
    the matrix from its first tile on.

    Args:
        x_ptr: the matrix.
        amax_ptr: the result.
        parts_ptr: memory for the amax of each part, if there are several.
        count_ptr: how many parts of each tile of groups are there; 0 before, and 0 again after.
        rows: of x.
        cols: of x.
        stride_x: between rows of x.
        MULTIPLE: what divides cols and stride_x.
        GROUP_ROWS: rows of a group; 0 for all.
        GROUP_COLS: columns of a group; 0 for all.
        PAD_ROWS: the next power of two.
        PAD_COLS: the next power of two.
        ROWS: rows of a tile.
        COLS: columns of a tile.
        AHEAD: parts that are read at a time; 0 where there is one.
    """
    width = vouched(cols, MULTIPLE)
    FULL: tl.constexpr = MULTIPLE % COLS == 0 and (GROUP_COLS == 0 or COLS % GROUP_COLS == 0)
    _, high = tiles_along(rows, GROUP_ROWS, PAD_ROWS, ROWS)
    count, wide = tiles_along(width, GROUP_COLS, PAD_COLS, COLS)
    place = tl.num_programs(0) - 1 - tl.program_id(0)
    down, across, part = place // count, place % count, tl.program_id(1)
    row = spread(down, 0, rows, GROUP_ROWS, PAD_ROWS, ROWS)
    col = spread(across, 0, width, GROUP_COLS, PAD_COLS, COLS)
    RG: tl.constexpr = row[2].shape[0]
    CG: tl.constexpr = col[2].shape[0]
    largest = tl.zeros((RG, row[2].shape[1], CG, col[2].shape[1]), tl.float32)
    parts = tl.num_programs(1)
    # Ahead through shared memory; else a thread had one load in flight: 49 us in place of 43 for
    # 117 MB by column on an H200.
    for back in tl.range(part, high * wide, parts, num_stages=3):
        tile = high * wide - 1 - back
        row = spread(down, tile // wide, rows, GROUP_ROWS, PAD_ROWS, ROWS)
        col = spread(across, tile % wide, width, GROUP_COLS, PAD_COLS, COLS)
        # Triton carries `_` through the loop as well, where it has another type.
        x, _row, _col, _in = load_groups(x_ptr, vouched(stride_x, MULTIPLE), row, col, FULL)
        largest = tl.maximum(largest, magnitudes(x))
    amax = tl.max(tl.max(largest, 3), 1)
    down_groups = 1 if GROUP_ROWS == 0 else tl.cdiv(rows, GROUP_ROWS)
    across_groups = 1 if GROUP_COLS == 0 else tl.cdiv(width, GROUP_COLS)
    groups = down_groups * across_groups
    at = row[0][:, None] * across_groups + col[0][None, :]
    inside = row[1][:, None] & col[1][None, :]
    if AHEAD == 0:
        tl.store(amax_ptr + at, amax, mask=inside)
    else:
        # Past L1, and before one thread says that it is there, as in `_split.gathered`.
        tl.store(parts_ptr + part * groups + at, amax, mask=inside, cache_modifier=".cg")
        tl.debug_barrier()
        if tl.atomic_add(count_ptr + place, 1, sem="acq_rel", scope="gpu") == parts - 1:
            found = tl.zeros((AHEAD, RG, CG), tl.float32)
            for first in range(0, parts, AHEAD):
                other = first + tl.arange(0, AHEAD)[:, None, None]
                there = (other < parts) & inside[None, :, :]
                places = parts_ptr + other * groups + at[None, :, :]
                found = tl.maximum(
                    found, tl.load(places, mask=there, other=0.0, cache_modifier=".cg")
                )
            tl.store(amax_ptr + at, tl.max(found, 0), mask=inside)
            tl.store(count_ptr + place, 0)


def count_tiles(extent: int, group: int, pad: int, tile: int) -> tuple[int, int]:
    """Count tiles of groups along an axis, and tiles of a group, as `tiles_along` does."""
    size = group or extent
    groups = triton.cdiv(extent, size)
    return triton.cdiv(groups, max(tile // pad, 1)), triton.cdiv(size, min(tile, pad))


def count_groups(x: torch.Tensor, groups: Mapping[str, int]) -> tuple[int, int]:
    """Count the groups of a matrix along its rows and columns."""
    sizes = (groups["GROUP_ROWS"], groups["GROUP_COLS"])
    high, wide = (
        triton.cdiv(n, size) if size else 1 for n, size in zip(x.shape, sizes, strict=True)
    )
    return high, wide


def amax_launch(
    x: torch.Tensor, groups: Mapping[str, int]
) -> tuple[tuple[int, int], dict[str, Any]]:
    """Give the grid and the arguments, by name, of the launch that finds each group's amax."""
    rows, cols = x.shape
    # Narrow groups of whole columns: a wide tile would have few rows, and few programs share it.
    most = max(groups["PAD_COLS"], NARROWEST) if groups["GROUP_COLS"] else _TILE // 2
    wide = min(_TILE // 2, most, triton.next_power_of_2(cols))
    high = min(_TILE // wide, triton.next_power_of_2(rows))
    down = count_tiles(rows, groups["GROUP_ROWS"], groups["PAD_ROWS"], high)
    across = count_tiles(cols, groups["GROUP_COLS"], groups["PAD_COLS"], wide)
    programs, tiles = down[0] * across[0], down[1] * across[1]
    parts = 1 if tiles <= _MOST_TILES else min(tiles, triton.cdiv(_MOST_PARTS, programs))
    counts, ahead, shared, here = count_groups(x, groups), 0, None, None
    if parts > 1:
        held = max(1, high // groups["PAD_ROWS"]) * max(1, wide // groups["PAD_COLS"])
        ahead = min(triton.next_power_of_2(parts), max(1, _TILE // held))
        shared = torch.empty((parts, *counts), dtype=torch.float32, device=x.device)
        here = workspace(x.device, 0)[1]
    amax = torch.empty(counts, dtype=torch.float32, device=x.device)
    tensors = {"x_ptr": x, "amax_ptr": amax, "parts_ptr": shared, "count_ptr": here}
    tile = {"ROWS": high, "COLS": wide, "AHEAD": ahead}
    return (programs, parts), {**tensors, **row_sizes(x=x), **groups, **tile}


amax_tuned = asm_autotune(configs=[Config({}, num_warps=4)])(amax_kernel)
