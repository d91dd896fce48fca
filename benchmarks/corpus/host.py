"""Host side of the corpus's kernels: launches, grids, bounds of spaces, random inputs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import triton

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space

SHARED = 227 * 1024
"""Bytes of shared memory a program may have on an H200."""


def launch(
    kernel: Any, shape: Mapping[str, int], arguments: Mapping[str, Any], *grid: Any
) -> Problem:
    """Make a launch that is named as its kernel's file.

    Args:
        kernel: the Triton function.
        shape: the launch's shape.
        arguments: the kernel's arguments but those of the config, and those that the shape has by
            their names.
        grid: a function of all values; or for each axis how many programs it has: a number, the
            name of a value, or an extent (or the name of one) and the names of the sizes that a
            program has of it.
    """

    def programs(values: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(_programs(axis, values) for axis in grid)

    made: Any = grid if all(isinstance(axis, int) for axis in grid) else programs
    name = Path(kernel.fn.__code__.co_filename).stem
    known = {**shape, **arguments}
    given = {parameter: known[parameter] for parameter in kernel.arg_names if parameter in known}
    return Problem(kernel, given, grid[0] if callable(grid[0]) else made, shape, name)


def _programs(axis: Any, values: Mapping[str, Any]) -> int:
    if isinstance(axis, tuple):
        extent, *sizes = axis
        return triton.cdiv(_programs(extent, values), math.prod(values[name] for name in sizes))
    return int(values[axis] if isinstance(axis, str) else axis)


def tiles(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid: a program for each tile of the (M, N) result."""
    high = triton.cdiv(values["M"], values["BLOCK_M"])
    return (high * triton.cdiv(values["N"], values["BLOCK_N"]),)


def walkers(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid: PROGRAMS programs, or one for each tile where there are fewer."""
    return (min(tiles(values)[0], values["PROGRAMS"]),)


def held(axes: Mapping[str, Sequence[Any]], least: int, most: int, *sizes: str) -> Space:
    """Keep the configs whose threads hold `least` to `most` elements of a tile of some sizes."""

    def fits(**values: int) -> bool:
        elements = math.prod(values[name] for name in sizes)
        return least <= elements // (values["num_warps"] * 32) <= most

    return Space(axes).where(f"a thread holds {least} to {most} elements", _of(fits, *sizes))


def _of(predicate: Callable[..., bool], *sizes: str) -> Callable[..., bool]:
    """Name the values that a predicate takes, besides the number of warps."""
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in (*sizes, "num_warps")
    ]
    vars(predicate)["__signature__"] = inspect.Signature(parameters)
    return predicate


def bounded(axes: Mapping[str, Sequence[Any]], most: int, itemsize: int) -> Space:
    """Keep the configs with 4 to `most` accumulators a thread whose stages fit in shared memory.

    Args:
        axes: BLOCK_M, BLOCK_N, BLOCK_K, num_warps and num_stages, among others.
        most: accumulators a thread.
        itemsize: bytes of an element of A and B.
    """
    return held(axes, 4, most, "BLOCK_M", "BLOCK_N").where(
        "the stages fit in shared memory",
        lambda BLOCK_M, BLOCK_N, BLOCK_K, num_stages: (
            (BLOCK_M + BLOCK_N) * BLOCK_K * itemsize * num_stages <= SHARED
        ),
    )


def normal(extents: Sequence[int], dtype: str, device: str) -> torch.Tensor:
    """Make a random tensor; integers from -8 to 7 for int8."""
    if dtype == "i8":
        return torch.randint(-8, 8, tuple(extents), device=device, dtype=torch.int8)
    return torch.randn(*extents, device=device).to(torch_dtype(dtype))


def ragged(count: int, mean: int) -> torch.Tensor:
    """Return the offsets of `count` segments: lengths of 0 to twice the mean, mixed and fixed."""
    lengths = torch.tensor([i * 37 % (2 * mean + 1) for i in range(count)])
    return torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]).to(torch.int32)
