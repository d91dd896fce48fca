"""Quantisation to FP8 against eager PyTorch, and against a copy of as many bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from asmtune.kernels.quantise import baseline
from benchmarks.kernels.entry import Entry, Inputs


def copy(given: Inputs) -> Callable[[], Any]:
    """Copy as many bytes as are read and written: no quantisation can be faster."""
    x = given["x"]
    moved = x.numel() * (x.element_size() + 1) // 2
    source = torch.empty(moved, dtype=torch.uint8, device=x.device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


ENTRY = Entry(
    vendor_name="amax, division, clamp and cast in eager PyTorch",
    vendor_kind="eager PyTorch",
    vendor=lambda given: lambda: baseline(**given),
    group="quantisation",
    others={"copy": copy},
)
