"""Inputs of the kinds' launches: random tensors, ragged lengths, and a bound on elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from asmtune.core.dtypes import torch_dtype
from asmtune.core.space.space import Space


def normal(extents: Sequence[int], dtype: str, device: str) -> torch.Tensor:
    """Make a random tensor."""
    return torch.randn(*extents, device=device).to(torch_dtype(dtype))


def ragged(count: int, mean: int) -> torch.Tensor:
    """Return the offsets of `count` segments: lengths of 0 to twice the mean, mixed and fixed."""
    lengths = torch.tensor([i * 37 % (2 * mean + 1) for i in range(count)])
    return torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]).to(torch.int32)


def elements(axes: Mapping[str, Sequence[Any]], least: int, most: int) -> Space:
    """Keep the configs whose threads hold `least` to `most` elements of a (ROWS, BLOCK) tile."""
    return Space({"ROWS": (1,), **axes}).where(
        f"a thread holds {least} to {most} elements",
        lambda ROWS, BLOCK, num_warps: least <= ROWS * BLOCK // (num_warps * 32) <= most,
    )
