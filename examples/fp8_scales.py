"""Round trips through FP8 (e4m3) with scales per tensor, channel and group, in plain PyTorch.

Each function gives what a reader of the stored numbers sees, which `asmtune.measure_accuracy`
compares with x.
Every 64th channel is `outliers` times as large as the others, as features of large language models
are (Dettmers et al. 2022, LLM.int8(), arXiv:2208.07339).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from asmtune.core.dtypes import torch_dtype

E4M3 = torch.float8_e4m3fn
MOST = torch.finfo(E4M3).max


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make a random activation of rows x cols; a channel is a column."""
    x = torch.randn(shape["rows"], shape["cols"], device=device)
    x[:, 32 % shape["cols"] :: 64] *= shape["outliers"]
    return {"x": x.to(torch_dtype(dtype))}


def per_tensor(x: torch.Tensor) -> torch.Tensor:
    """Use one scale."""
    return _round_trip(x, x.abs().amax())


def per_channel(x: torch.Tensor) -> torch.Tensor:
    """Use a scale a column."""
    return _round_trip(x, x.abs().amax(0, keepdim=True))


def per_group(x: torch.Tensor, group: int = 128) -> torch.Tensor:
    """Use a scale for each `group` numbers of a row."""
    groups = x.unflatten(-1, (-1, group))
    return _round_trip(groups, groups.abs().amax(-1, keepdim=True)).flatten(-2)


def _round_trip(x: torch.Tensor, amax: torch.Tensor) -> torch.Tensor:
    scale = amax.float().clamp(min=torch.finfo(torch.float32).tiny) / MOST
    stored = (x / scale).clamp(-MOST, MOST).to(E4M3)
    return (stored.float() * scale).to(x.dtype)
