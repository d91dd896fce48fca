"""Helpers of kernels over rows: their space, grid, sums in one pass, and sums of parts.

The normalisations' gradients leave sums over rows in parts, which a launch after adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.keys.buckets import pow2
from asmtune.core.space.space import Space
from asmtune.kernels._common import (
    as_rows,
    check_rows,
    check_shape,
    check_tensors,
    doubled,
    load_columns,
    multiple,
    row_sizes,
    store_columns,
    vouched,
    walkers,
)
from asmtune.runtime.decorator import asm_autotune

ROW_KEY = (pow2("rows"), "cols", "MULTIPLE")
"""The tuning key of kernels over rows."""

_NARROWEST = 1024
_SUMMED = 4096
"""Elements of a program of `sum_parts_kernel`: 16 a thread, so that the few programs of narrow
rows have enough loads under way."""


@triton.jit
def online_sum(
    x_ptr,
    width,
    MULTIPLE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute maximum and sum of exp(x - maximum) of rows that begin at `x_ptr`, read once.

    Four elements of a thread's share a running maximum: that is 1.25 exponentials an element,
    where one maximum an element would make it two. They are neighbours where loads are of
    vectors, and a quarter of the block apart where they are of single elements.
    """
    FULL: tl.constexpr = MULTIPLE % BLOCK == 0
    FOURS: tl.constexpr = (ROWS, BLOCK // 4, 4) if MULTIPLE >= 4 else (ROWS, 4, BLOCK // 4)
    AXIS: tl.constexpr = 2 if MULTIPLE >= 4 else 1
    # The least float, not -inf: the difference of two would be NaN.
    top = tl.full((ROWS, BLOCK // 4), -3.4028234663852886e38, tl.float32)
    total = tl.zeros((ROWS, BLOCK // 4), tl.float32)
    for start in tl.range(0, width, BLOCK, num_stages=STAGES):
        column = start + tl.arange(0, BLOCK)[None, :]
        x = load_columns(x_ptr, column, width, float("-inf"), FULL)
        fours = tl.reshape(x, FOURS)
        higher = tl.maximum(top, tl.max(fours, AXIS))
        e = tl.exp(fours - tl.expand_dims(higher, AXIS))
        total = total * tl.exp(top - higher) + tl.sum(e, AXIS)
        top = higher
    highest = tl.max(top, 1)
    return highest, tl.sum(total * tl.exp(top - highest[:, None]), 1)


@triton.jit
def load_tile(ptr, column, width, inside, FULL: tl.constexpr, ROWS: tl.constexpr):
    """Load values in fp32 of ROWS rows that begin at `ptr`, 0 for rows that are not `inside`."""
    if not FULL:
        values = tl.load(ptr + column, mask=(column < width) & inside, other=0.0)
    elif ROWS > 1:
        values = tl.load(ptr + column, mask=inside, other=0.0)
    else:
        values = tl.load(ptr + column)
    return values.to(tl.float32)


@triton.jit
def store_tile(ptr, column, width, inside, values, FULL: tl.constexpr, ROWS: tl.constexpr):
    """Store values, rounded to the tensor's dtype, where `load_tile` would load them."""
    values = values.to(ptr.dtype.element_ty)
    if not FULL:
        tl.store(ptr + column, values, mask=(column < width) & inside)
    elif ROWS > 1:
        tl.store(ptr + column, values, mask=inside)
    else:
        tl.store(ptr + column, values)


@triton.jit(do_not_specialize=["programs", "cols"])
def sum_parts_kernel(
    parts_ptr,
    first_ptr,
    second_ptr,
    programs,
    cols,
    MULTIPLE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum BLOCK columns over all programs' parts, which are (1 or 2, programs, cols) in fp32.

    The grid's second axis is the parts' first: `first_ptr` gets the sums of the first parts,
    `second_ptr` those of the second.
    """
    width = vouched(cols, MULTIPLE)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    parts_ptr += tl.program_id(1).to(tl.int64) * programs * width
    sums = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, programs, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        inside = (row < programs) & (column < width)
        sums += tl.load(parts_ptr + row.to(tl.int64) * width + column, mask=inside, other=0.0)
    total = tl.sum(sums, 0)[None, :]
    if tl.program_id(1) == 0:
        store_columns(first_ptr, column, width, total, False)
    else:
        store_columns(second_ptr, column, width, total, False)


def sum_parts(parts: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    """Sum what programs have left, (1 or 2, programs, cols) in fp32, in a fixed order.

    Returns:
        The sums over all programs, (cols,) of a dtype, for each of the parts' first axis.
    """
    count, programs, cols = parts.shape
    sums = [torch.empty(cols, dtype=dtype, device=parts.device) for _ in range(count)]
    block = 32 if cols >= 4096 else 16  # narrow rows would leave most SMs without a program
    sizes = {"MULTIPLE": multiple(cols), "ROWS": _SUMMED // block, "BLOCK": block}
    grid = (triton.cdiv(cols, block), count)
    _sum_parts[grid](parts, sums[0], sums[-1], programs, cols, **sizes)
    return sums


def row_axes(default: Config) -> Space:
    """Give the axes: rows a program, the widest row held whole, stages of longer ones, warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16),
        "BLOCK": (_NARROWEST, 2048, 4096, 8192, 16384, 32768),
        "STAGES": (1, 2, 3),
        "num_warps": (1, 2, 4, 8, 16, 32),
    }
    return (
        Space(axes, default=default)
        .where("a block is under twice as wide as a row", _is_of_use)
        .where(
            "a row that is held whole needs no stages",
            lambda BLOCK, STAGES, cols: STAGES == 1 or cols > BLOCK,
        )
        .where(
            "rows in blocks come one a program",
            lambda ROWS, BLOCK, cols: ROWS == 1 or cols <= BLOCK,
        )
        .where("a thread has 2 to 64 elements", _fits_threads)
    )


def walk_axes(default: Config) -> Space:
    """Give the axes of programs that walk rows: rows at once, the widest row held whole, warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16),
        "BLOCK": (_NARROWEST, 2048, 4096, 8192, 16384),
        "num_warps": (1, 2, 4, 8, 16, 32),
    }
    return (
        Space(axes, default=default)
        .where("a block is under twice as wide as a row", _is_of_use)
        .where(
            "rows in blocks come one at a time",
            lambda ROWS, BLOCK, cols: ROWS == 1 or cols <= BLOCK,
        )
        .where("a thread has 2 to 32 elements of each tile", _fits_walkers)
    )


def _is_of_use(BLOCK: int, cols: int) -> bool:
    return 2 * cols > BLOCK or BLOCK == _NARROWEST


def _fits_threads(ROWS: int, BLOCK: int, num_warps: int, cols: int) -> bool:
    across = min(BLOCK, triton.next_power_of_2(cols))
    # A row of a few elements has no config with two for every thread.
    return ROWS * across <= num_warps * 2048 and (ROWS * across >= num_warps * 64 or num_warps == 1)


def _fits_walkers(ROWS: int, BLOCK: int, num_warps: int, cols: int) -> bool:
    across = min(BLOCK, triton.next_power_of_2(cols))
    return _fits_threads(ROWS, BLOCK, num_warps, cols) and ROWS * across <= num_warps * 1024


def whole_row_sizes(**matrices: torch.Tensor) -> dict[str, int]:
    """Extend `row_sizes` by the width of a block that holds a whole row."""
    sizes = row_sizes(**matrices)
    return {**sizes, "WIDTH": triton.next_power_of_2(sizes["cols"])}


def checked_rows(what: str, x: torch.Tensor, **columns: torch.Tensor) -> dict[str, Any]:
    """Check x and tensors of its last axis; give them without gaps in rows, by kernel parameter.

    Args:
        what: the public function's name.
        x: (..., cols); given as a matrix.
        columns: (cols,) each, of x's dtype.
    """
    check_tensors(what, {"x": x, **columns})
    check_rows(what, x)
    for name, tensor in columns.items():
        check_shape(what, name, tensor, x.shape[-1:])
    of_columns = {f"{name}_ptr": tensor.contiguous() for name, tensor in columns.items()}
    return {"x_ptr": as_rows(x), **of_columns}


def row_grid(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid: programs of ROWS rows each."""
    return (triton.cdiv(values["rows"], values["ROWS"]),)


_sum_parts = asm_autotune(configs=[Config({}, num_warps=8)])(sum_parts_kernel)


def add_rows(given: Mapping[str, Any], parts: torch.Tensor) -> None:
    """Add to each program's parts what it sums of its rows, in the parts' dtype.

    Args:
        given: a launch's arguments by name.
        parts: (programs, cols), or (2, programs, cols) where there is a bias.
    """
    rows, programs, cols = given["rows"], given["programs"], given["cols"]
    parts = parts.view(-1, programs, cols)
    for first in range(0, rows, programs):
        part = slice(first, min(first + programs, rows))
        dy, x, rstd = (given[f"{n}_ptr"][part].to(parts.dtype) for n in ("dy", "x", "rstd"))
        mean = given["mean_ptr"][part, None] if "mean_ptr" in given else 0.0
        parts[0, : len(x)] += dy * (x - mean) * rstd[:, None]
        if len(parts) > 1:
            parts[1, : len(x)] += dy


def walk_reference(baseline: Callable[..., Any], arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """Compute the gradient of x and the parts in float64 from a problem's arguments."""
    names = ("dy_ptr", "x_ptr", "weight_ptr", "mean_ptr", "rstd_ptr")
    given = doubled(arguments, *(name for name in names if name in arguments))
    parts = torch.zeros_like(arguments["parts_ptr"], dtype=torch.float64)
    add_rows(arguments, parts)
    return baseline(*given)[0], parts


def walk_grid(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid: programs that walk the rows."""
    return (values["programs"],)


def walk_arguments(
    sums: tuple[int, ...],
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    **saved: torch.Tensor,
) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the results.

    `sums` is () for those of the weight, (2,) for the bias as well.
    """
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    programs = walkers(x)
    parts = torch.empty((*sums, programs, x.shape[1]), dtype=torch.float32, device=x.device)
    given = {"dy": dy, "x": x, "weight": weight, **saved, "dx": dx, "parts": parts}
    tensors = {f"{name}_ptr": tensor for name, tensor in given.items()}
    return {**tensors, "programs": programs, **whole_row_sizes(dy=dy, x=x, dx=dx)}


def differentiate(
    what: str,
    tuned: Any,
    made_by: Callable[..., dict[str, Any]],
    given: Mapping[str, torch.Tensor],
    saved: Mapping[str, torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """Compute the gradients of x, of the weight, and of the bias if there is one.

    Args:
        what: the public function's name.
        tuned: the kernel.
        made_by: gives a launch's arguments by name.
        given: dy and x of (..., cols), and weight of (cols,), of one dtype.
        saved: of (rows,) each, in fp32, as `walk_arguments` takes them.

    Raises:
        ValueError: a tensor does not fit; the message names it, what it is and what it must be.
    """
    dy, x, weight = given["dy"], given["x"], given["weight"]
    check_tensors(what, {"x": x, "dy": dy, "weight": weight})
    check_tensors(what, saved, ("fp32",))
    check_shape(what, "dy", dy, x.shape)
    check_shape(what, "weight", weight, x.shape[-1:])
    for name, tensor in saved.items():
        check_shape(what, name, tensor, (x.shape[:-1].numel(),))
    if not x.numel():
        # A mean is saved where there is a bias.
        return (torch.empty_like(x), *(torch.zeros_like(weight) for _ in saved))
    columns = {name: tensor.contiguous() for name, tensor in saved.items()}
    launch = made_by(as_rows(dy), as_rows(x), weight.contiguous(), **columns)
    tuned[walk_grid](**launch)
    parts = launch["parts_ptr"].view(-1, launch["programs"], launch["cols"])
    return (launch["dx_ptr"].view(x.shape), *sum_parts(parts, weight.dtype))


of_weight, of_both = partial(walk_arguments, ()), partial(walk_arguments, (2,))
