"""Horizontal warp against PyTorch, whose `grid_sample` takes no int8: two gathers and a mix."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], torch.Tensor]:
    """Gather rows with a zero at either end, to which columns out of range are clamped."""
    x, offset = given["x"], given["offset"]
    columns = torch.arange(1, x.shape[2] + 1, device=x.device)

    def launch() -> torch.Tensor:
        padded = torch.nn.functional.pad(x, (1, 1))
        right = columns - (offset >> 8)
        last = x.shape[2] + 1
        here, left = (
            padded.gather(2, at.clamp(0, last).expand(x.shape)).int() for at in (right, right - 1)
        )
        return ((here * 256 + (left - here) * (offset & 0xFF)) >> 8).to(torch.int8)

    return launch


ENTRY = Entry(
    vendor_name="pad, two gathers and a mix in eager PyTorch",
    vendor_kind="eager PyTorch",
    vendor=vendor,
    group="image",
)
