"""Helpers of the matrix products' modules: grid, bounds of a space, random operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import triton

from asmtune.core.dtypes import torch_dtype
from asmtune.core.space.space import Space

SHARED = 227 * 1024
"""Bytes of shared memory a program may have on an H200."""


def tiles(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid: a program for each tile of the (M, N) result."""
    high = triton.cdiv(values["M"], values["BLOCK_M"])
    return (high * triton.cdiv(values["N"], values["BLOCK_N"]),)


def walkers(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid: PROGRAMS programs, or one for each tile where there are fewer."""
    return (min(tiles(values)[0], values["PROGRAMS"]),)


def bounded(axes: Mapping[str, Sequence[Any]], most: int, itemsize: int) -> Space:
    """Keep the configs with 4 to `most` accumulators a thread whose stages fit in shared memory.

    Args:
        axes: BLOCK_M, BLOCK_N, BLOCK_K, num_warps and num_stages, among others.
        most: accumulators a thread.
        itemsize: bytes of an element of A and B.
    """
    return (
        Space(axes)
        .where(
            f"a thread holds 4 to {most} accumulators",
            lambda BLOCK_M, BLOCK_N, num_warps: 4 <= BLOCK_M * BLOCK_N // (num_warps * 32) <= most,
        )
        .where(
            "the stages fit in shared memory",
            lambda BLOCK_M, BLOCK_N, BLOCK_K, num_stages: (
                (BLOCK_M + BLOCK_N) * BLOCK_K * itemsize * num_stages <= SHARED
            ),
        )
    )


def normal(extents: Sequence[int], dtype: str, device: str) -> torch.Tensor:
    """Make a random tensor; integers from -8 to 7 for int8."""
    if dtype == "i8":
        return torch.randint(-8, 8, tuple(extents), device=device, dtype=torch.int8)
    return torch.randn(*extents, device=device).to(torch_dtype(dtype))
