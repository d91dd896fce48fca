"""Rotary embedding against PyTorch, which has no one function for it: four operations."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], torch.Tensor]:
    """Compute x * cos + (-x2, x1) * sin; both tables are widened before, as models keep them."""
    x = given["x"]
    cos, sin = (torch.cat((t, t), -1)[:, None, None] for t in (given["cos"], given["sin"]))

    def launch() -> torch.Tensor:
        x1, x2 = x.chunk(2, -1)
        return torch.addcmul(x * cos, torch.cat((-x2, x1), -1), sin)

    return launch


ENTRY = Entry(
    vendor_name="x * cos + cat(-x2, x1) * sin in eager PyTorch",
    vendor_kind="eager PyTorch",
    vendor=vendor,
    group="element-wise",
)
