"""Groups of a matrix's rows and columns: the tiles that hold or share them, and their amax."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.kernels._common import vouched
from asmtune.runtime.decorator import asm_autotune


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


@triton.jit(do_not_specialize=["rows", "cols", "stride_x", "each"])
def amax_kernel(
    x_ptr,
    amax_ptr,
    rows,
    cols,
    stride_x,
    each,
    MULTIPLE: tl.constexpr,
    GROUP_ROWS: tl.constexpr,
    GROUP_COLS: tl.constexpr,
    PAD_ROWS: tl.constexpr,
    PAD_COLS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Compute the amax of `each` tiles of groups, (parts, row groups, column groups)."""
    width = vouched(cols, MULTIPLE)
    FULL: tl.constexpr = MULTIPLE % COLS == 0 and (GROUP_COLS == 0 or COLS % GROUP_COLS == 0)
    _, high = tiles_along(rows, GROUP_ROWS, PAD_ROWS, ROWS)
    count, wide = tiles_along(width, GROUP_COLS, PAD_COLS, COLS)
    down, across, part = tl.program_id(0) // count, tl.program_id(0) % count, tl.program_id(1)
    row = spread(down, 0, rows, GROUP_ROWS, PAD_ROWS, ROWS)
    col = spread(across, 0, width, GROUP_COLS, PAD_COLS, COLS)
    RG: tl.constexpr = row[2].shape[0]
    CG: tl.constexpr = col[2].shape[0]
    largest = tl.zeros((RG, row[2].shape[1], CG, col[2].shape[1]), tl.float32)
    for tile in range(part * each, min(part * each + each, high * wide)):
        row = spread(down, tile // wide, rows, GROUP_ROWS, PAD_ROWS, ROWS)
        col = spread(across, tile % wide, width, GROUP_COLS, PAD_COLS, COLS)
        # Triton carries `_` through the loop as well, where it has another type.
        x, _row, _col, _in = load_groups(x_ptr, vouched(stride_x, MULTIPLE), row, col, FULL)
        largest = tl.maximum(largest, magnitudes(x))
    amax = tl.max(tl.max(largest, 3), 1)
    down_groups = 1 if GROUP_ROWS == 0 else tl.cdiv(rows, GROUP_ROWS)
    across_groups = 1 if GROUP_COLS == 0 else tl.cdiv(width, GROUP_COLS)
    at = (part * down_groups + row[0][:, None]) * across_groups + col[0][None, :]
    tl.store(amax_ptr + at, amax, mask=row[1][:, None] & col[1][None, :])


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


amax_tuned = asm_autotune(configs=[Config({}, num_warps=8)])(amax_kernel)
