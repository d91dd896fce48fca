"""Upsampling by two against PyTorch, whose `interpolate` takes no int8 on a GPU: integer ops."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], torch.Tensor]:
    """Average neighbours, stacked with the pixels, across and then down."""
    x = given["x"]

    def launch() -> torch.Tensor:
        wide = x.short()
        after = torch.cat((wide[..., 1:], wide[..., -1:]), -1)
        rows = torch.stack((wide, (wide + after) >> 1), -1).flatten(-2)
        below = torch.cat((rows[:, 1:], rows[:, -1:]), 1)
        return torch.stack((rows, (rows + below) >> 1), 2).flatten(1, 2).to(torch.int8)

    return launch


ENTRY = Entry(
    vendor_name="shifts, sums and stacks in eager PyTorch",
    vendor_kind="eager PyTorch",
    vendor=vendor,
    group="image",
)
