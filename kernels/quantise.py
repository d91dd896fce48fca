"""Quantisation to FP8 with a scale per tensor, row, column or group: y = round(x / scale).

A group's scale is amax / most, its largest finite magnitude by the format's largest value: 1 for
a group of zeros, and never a subnormal number. A group that fits a tile is read once; the amax of
a larger one, as of a whole tensor, is found by a pass before. Static scales, or an amax that a
scaler keeps, take one pass as well. In fp32, y is the nearest to x * (1 / scale), ties to even;
values beyond the format's largest become it, infinities too, and NaN becomes 0x7f. All devices
give equal bytes: those without FP8 units round by integer arithmetic.

Shapes: x is (.., cols), seen as a matrix of rows; scales are (rows / group rows, cols / group
columns), rounded up: the last group may be short.
Dtypes: fp32, fp16, bf16 to e4m3 or e5m2; scales are fp32.
Layout: rows at any stride; x is copied where its last axis has gaps. Scales lie as
`torch._scaled_mm` takes them: by column for groups of one row, else by row, padded to four.
Source: Micikevicius et al., arXiv:2209.05433 (FP8); DeepSeek-V3, arXiv:2412.19437, 3.3.2 (groups).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.core.keys.buckets import pow2
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.kernels._common import (
    as_rows,
    check_rows,
    check_shape,
    check_tensors,
    forward_only,
    row_sizes,
    vouched,
)
from asmtune.kernels._fp8 import FORMATS, LIMITS, fp8_bits, scale_of
from asmtune.kernels._groups import (
    NARROWEST,
    amax_launch,
    amax_tuned,
    count_groups,
    count_tiles,
    load_groups,
    magnitudes,
    spread,
    tiles_along,
)
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.replay_calls import replay_calls

GROUPS = {"tensor": (0, 0), "row": (1, 0), "column": (0, 1)}
"""Extents of named groups; 0 for the whole axis."""

_MOST = 32768
"""Most elements of a group that a program holds at once."""

SOURCES = {"x": 0, "amax": 1, "scales": 2}
"""Sources of scales: numbers, since a space's constraints see no strings."""


@triton.jit(do_not_specialize=["rows", "cols", "stride_x", "stride_y"])
def kernel(
    x_ptr,
    given_ptr,
    y_ptr,
    scale_ptr,
    rows,
    cols,
    stride_x,
    stride_y,
    stride_gr,
    stride_gc,
    stride_sr,
    stride_sc,
    MULTIPLE: tl.constexpr,
    FORMAT: tl.constexpr,
    SOURCE: tl.constexpr,
    GROUP_ROWS: tl.constexpr,
    GROUP_COLS: tl.constexpr,
    PAD_ROWS: tl.constexpr,
    PAD_COLS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    TILES: tl.constexpr,
):
    """Quantise TILES tiles a program. SOURCE of scales: 0 is x, 1 an amax, 2 `given_ptr` itself."""
    width = vouched(cols, MULTIPLE)
    HIGH: tl.constexpr = PAD_ROWS if SOURCE == 0 and PAD_ROWS > ROWS else ROWS
    WIDE: tl.constexpr = PAD_COLS if SOURCE == 0 and PAD_COLS > COLS else COLS
    FULL: tl.constexpr = MULTIPLE % WIDE == 0 and (GROUP_COLS == 0 or WIDE % GROUP_COLS == 0)
    _, high = tiles_along(rows, GROUP_ROWS, PAD_ROWS, HIGH)
    count, wide = tiles_along(width, GROUP_COLS, PAD_COLS, WIDE)
    first = tl.program_id(0) * TILES
    for tile in range(first, first + TILES):
        down, across = tile // (count * wide), tile % (count * wide)
        row = spread(down // high, down % high, rows, GROUP_ROWS, PAD_ROWS, HIGH)
        col = spread(across // wide, across % wide, width, GROUP_COLS, PAD_COLS, WIDE)
        x, at_row, at_col, inside = load_groups(x_ptr, vouched(stride_x, MULTIPLE), row, col, FULL)
        r, c, there = row[0][:, None], col[0][None, :], row[1][:, None] & col[1][None, :]
        if SOURCE == 0:
            scale = scale_of(tl.max(tl.max(magnitudes(x), 3), 1), FORMAT)
        else:
            scale = tl.load(given_ptr + r * stride_gr + c * stride_gc, mask=there, other=1.0)
        if SOURCE == 1:
            scale = scale_of(scale, FORMAT)
        # By the first tile of a group alone: programs that all wrote took 2 to 3 us of 92 (H200).
        leads = there & (down % high == 0) & (across % wide == 0)
        tl.store(scale_ptr + r * stride_sr + c * stride_sc, scale, mask=leads)
        inverse = tl.math.div_rn(scale * 0.0 + 1.0, scale)
        bits = fp8_bits(x * inverse[:, None, :, None], FORMAT)
        tl.store(y_ptr + at_row * vouched(stride_y, MULTIPLE) + at_col, bits, mask=inside)


OUTPUTS = ("y_ptr", "scale_ptr")

DTYPES = ("bf16", "fp16", "fp32")


def _shape(rows: int, cols: int, group: tuple[int, int], e5m2: int = 0) -> dict[str, int]:
    names = ("rows", "cols", "group_rows", "group_cols", "e5m2")
    return dict(zip(names, (rows, cols, *group, e5m2), strict=True))


SHAPES = (
    _shape(8192, 7168, (1, 128)),
    _shape(7168, 8192, (128, 128)),
    _shape(8192, 8192, (1, 0)),
    _shape(4096, 4096, (1, 128), 1),
    _shape(64, 7168, (1, 128)),
)
"""Activations and weights of DeepSeek-V3, rows, e5m2 and few rows; a group of 0 is a whole axis."""

DEFAULT = Config({"ROWS": 1, "COLS": NARROWEST, "TILES": 1}, num_warps=8)


def space() -> Space:
    """Build the space: rows and columns of a tile, at least a group's, tiles a program, warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16, 32, 64),
        "COLS": (NARROWEST, 256, 512, 1024, 2048, 4096, 8192),
        "TILES": (1, 2, 4),
        "num_warps": (1, 2, 4, 8, 16, 32),
    }
    return (
        Space(axes, default=DEFAULT)
        .where("a tile that a group enlarges is given by its least extents", _is_given_once)
        .where("a tile is under twice as high and wide as x", _is_of_use)
        .where("a thread has 4 to 64 elements", _fits_threads)
        .where(
            "programs of several tiles are 256 or more",
            lambda TILES, ROWS, COLS, rows, cols: (
                TILES == 1 or rows * cols >= 256 * TILES * ROWS * COLS
            ),
        )
    )


def _is_given_once(ROWS: int, COLS: int, PAD_ROWS: int, PAD_COLS: int, SOURCE: int) -> bool:
    rows, cols = ROWS == 1 or ROWS > PAD_ROWS, COLS == NARROWEST or COLS > PAD_COLS
    return bool(SOURCE) or (rows and cols)


def _is_of_use(ROWS: int, COLS: int, rows: int, cols: int) -> bool:
    return (2 * rows > ROWS) and (2 * cols > COLS or COLS == NARROWEST)


def _fits_threads(
    ROWS: int, COLS: int, num_warps: int, PAD_ROWS: int, PAD_COLS: int, SOURCE: int
) -> bool:
    pads = (PAD_ROWS, PAD_COLS) if SOURCE == 0 else (1, 1)
    elements = max(ROWS, pads[0]) * max(COLS, pads[1])
    least = (ROWS, COLS, num_warps) == (1, NARROWEST, DEFAULT.num_warps)
    return least or 128 * num_warps <= elements <= 2048 * num_warps


def _tile(values: Mapping[str, Any]) -> tuple[int, int]:
    """Give the extents of a tile, which holds whole groups where scales are of x."""
    own, pads = (values["ROWS"], values["COLS"]), (values["PAD_ROWS"], values["PAD_COLS"])
    return (max(own[0], pads[0]), max(own[1], pads[1])) if values["SOURCE"] == 0 else own


def grid(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid: programs of TILES tiles."""
    high, wide = _tile(values)
    down = count_tiles(values["rows"], values["GROUP_ROWS"], values["PAD_ROWS"], high)
    across = count_tiles(values["cols"], values["GROUP_COLS"], values["PAD_COLS"], wide)
    return (triton.cdiv(math.prod(down + across), values["TILES"]),)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `quantise` by name."""
    x = torch.randn(shape["rows"], shape["cols"], device=device).to(torch_dtype(dtype))
    group = (shape["group_rows"], shape["group_cols"])
    return {"x": x, "format": "e5m2" if shape["e5m2"] else "e4m3", "group": group}


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on a random matrix; the amax of groups that fit no tile is PyTorch's."""
    given = inputs(shape, dtype, device)
    groups = _groups(given["x"], given["group"])
    amax, source = (None, "x") if _fits(groups) else (_amax(given["x"], given["group"]), "amax")
    arguments = _arguments(given["x"], given["format"], groups, amax, source)
    shape = {**shape, **{name: arguments[name] for name in (*groups, "SOURCE")}}
    return Problem(kernel, arguments, grid, shape, "quantise")


def by_group(x: torch.Tensor, group: str | tuple[int, int]) -> torch.Tensor:
    """View a matrix as (row groups, rows, column groups, columns), padded with zeros."""
    groups = _groups(x, group)
    (gr, gc), (rows, cols) = count_groups(x, groups), x.shape
    high, wide = groups["GROUP_ROWS"] or rows, groups["GROUP_COLS"] or cols
    padded = torch.nn.functional.pad(x, (0, gc * wide - cols, 0, gr * high - rows))
    return padded.view(gr, high, gc, wide)


def _amax(x: torch.Tensor, group: str | tuple[int, int]) -> torch.Tensor:
    # With a zero more along each axis: groups may be empty.
    size = torch.nn.functional.pad(by_group(x.float().abs(), group), (0, 1, 0, 0, 0, 1))
    return torch.where(size.isfinite(), size, 0.0).amax((1, 3))


def baseline(
    x: torch.Tensor,
    format: str = "e4m3",  # noqa: A002
    group: str | tuple[int, int] = "tensor",
    scales: torch.Tensor | None = None,
    amax: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the kernel's result in PyTorch, in fp32 whatever x is: the same bytes."""
    rows, most = x.float().reshape(-1, x.shape[-1]), LIMITS[format]
    if scales is None:
        amax = _amax(rows, group) if amax is None else amax.float()
        # A divisor that is a number is one that PyTorch multiplies by its reciprocal.
        least = torch.finfo(torch.float32).tiny
        scales = (amax / torch.full_like(amax, most)).clamp(min=least)
        scales = torch.where(amax > 0, scales, 1.0)
    tiles = by_group(rows, group)
    inverse = (torch.ones_like(scales.float()) / scales.float()).view(len(tiles), 1, -1, 1)
    y = (tiles * inverse).clamp(-most, most).flatten(2).flatten(0, 1)[: len(rows), : x.shape[-1]]
    return y.to(FORMATS[format]).reshape(x.shape), scales


def reference(arguments: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the bytes and the scales from a problem's arguments."""
    group = (arguments["GROUP_ROWS"], arguments["GROUP_COLS"])
    y, scales = baseline(arguments["x_ptr"], arguments["FORMAT"], group)
    return y.view(torch.uint8), scales


@replay_calls
def quantise(
    x: torch.Tensor,
    format: str = "e4m3",  # noqa: A002
    group: str | tuple[int, int] = "tensor",
    scales: torch.Tensor | None = None,
    amax: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise a tensor to FP8 by the tuned kernel.

    Args:
        x: (.., cols), of a dtype of DTYPES, on a GPU; seen as a matrix of rows.
        format: "e4m3" or "e5m2".
        group: elements that share a scale: "tensor", "row", "column", or (rows, columns), 0 for
            a whole axis. Groups begin at the first row and column; the last may be short.
        scales: fp32, one a group: static scales. By default they are of each group's amax.
        amax: fp32, one a group, to take scales from in place of x's own: a running amax.

    Returns:
        The values, of x's shape and the format's dtype, and the scales, (row groups, column
        groups) in fp32; x is about values * scales. Those given are copied.

    Raises:
        ValueError: a dtype, the format, the group or the shape of scales is not one of those, both
            scales and amax are given, rows are empty, or a gradient is asked for.
    """
    forward_only("quantise", x)
    check_tensors("quantise", {"x": x}, DTYPES)
    check_rows("quantise", x)
    if format not in FORMATS:
        raise ValueError(f"quantise: format is {format!r}; it must be one of {', '.join(FORMATS)}")
    rows = as_rows(x)
    groups = _groups(rows, group)
    given, source = _given(scales, amax, rows, groups)
    if given is None and rows.numel() and not _fits(groups):
        programs, launch = amax_launch(rows, groups)
        amax_tuned[programs](**launch)
        given, source = launch["amax_ptr"], "amax"
    arguments = _arguments(rows, format, groups, given, source)
    if x.numel():
        _tuned[grid](**arguments)
    elif arguments["scale_ptr"].numel():
        arguments["scale_ptr"].copy_(baseline(rows, format, group, scales, amax)[1])
    return arguments["y_ptr"].view(FORMATS[format]).view(x.shape), arguments["scale_ptr"]


def _given(
    scales: torch.Tensor | None,
    amax: torch.Tensor | None,
    x: torch.Tensor,
    groups: Mapping[str, int],
) -> tuple[torch.Tensor | None, str]:
    """Check what scales are given, and return them as (row groups, column groups)."""
    if scales is not None and amax is not None:
        raise ValueError("quantise: scales and amax are given; give one of them")
    name, given = ("amax", amax) if scales is None else ("scales", scales)
    if given is None:
        return None, "x"
    if given.dtype != torch.float32 or given.device != x.device:
        raise ValueError(
            f"quantise: {name} is {given.dtype} on {given.device}; "
            f"it must be torch.float32 on {x.device}"
        )
    wanted = count_groups(x, groups)
    if given.ndim < 2 and 1 in wanted and given.numel() == math.prod(wanted):
        given = given.reshape(wanted)
    check_shape("quantise", name, given, wanted)
    return given, name


def _groups(x: torch.Tensor, group: str | tuple[int, int]) -> dict[str, int]:
    """Give the extents of a group of a matrix, 0 for a whole axis, and the next powers of two.

    Raises:
        ValueError: the group is neither a name nor a pair of extents.
    """
    pair = GROUPS.get(group) if isinstance(group, str) else group
    whole = isinstance(pair, tuple | list) and len(pair) == 2
    if pair is None or not whole or any(type(n) is not int or n < 0 for n in pair):
        raise ValueError(
            f"quantise: group is {group!r}; it must be one of {', '.join(GROUPS)}, "
            "or (rows, columns), 0 for a whole axis"
        )
    found = {}
    for axis, extent, size in zip(("ROWS", "COLS"), x.shape, pair, strict=True):
        # A group of one row stays one where there is no other, which its scales' layout tells.
        found[f"GROUP_{axis}"] = 0 if size >= extent and size != 1 else size
        found[f"PAD_{axis}"] = triton.next_power_of_2(min(size, extent) or max(extent, 1))
    return found


def _fits(groups: Mapping[str, int]) -> bool:
    """Return whether a program can hold a group, in a tile of the least width or more."""
    return groups["PAD_ROWS"] * max(groups["PAD_COLS"], NARROWEST) <= _MOST


def _arguments(
    x: torch.Tensor,
    format_: str,
    groups: Mapping[str, int],
    given: torch.Tensor | None,
    source: str,
) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the results; x is a matrix."""
    y = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    high, wide = count_groups(x, groups)
    by_column = groups["GROUP_ROWS"] == 1 and wide > 1
    steps = (1, high) if by_column else (triton.cdiv(wide, 4) * 4 if wide > 1 else 1, 1)
    scales = torch.empty_strided((high, wide), steps, dtype=torch.float32, device=x.device)
    tensors = {"x_ptr": x, "given_ptr": given, "y_ptr": y, "scale_ptr": scales}
    every = (*((0, 0) if given is None else given.stride()), *steps)
    strides = dict(zip(("stride_gr", "stride_gc", "stride_sr", "stride_sc"), every, strict=True))
    codes = {"FORMAT": format_, "SOURCE": SOURCES[source]}
    return {**tensors, **row_sizes(x=x, y=y), **strides, **codes, **groups}


_KEY = (pow2("rows"), "cols", "MULTIPLE", "FORMAT", "SOURCE", "GROUP_ROWS", "GROUP_COLS")
_tuned = asm_autotune(space=space, key=_KEY)(kernel)
