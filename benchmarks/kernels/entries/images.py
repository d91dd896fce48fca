"""Functions of int8 images against PyTorch, which has none: several operations of each."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.kernels.entry import Entry, Inputs


def correlation(given: Inputs) -> Callable[[], torch.Tensor]:
    """Launch four operations a shift, written into zeros."""
    src0, src1 = given["src0"], given["src1"]
    shifts, out_shift, wide = given["shifts"], given["out_shift"], src0.shape[2]

    def launch() -> torch.Tensor:
        out = torch.zeros((shifts, *src0.shape[1:]), dtype=torch.int8, device=src0.device)
        first = src0.int()
        for d in range(min(shifts, wide)):
            products = first[:, :, d:] * src1[:, :, : wide - d]
            # int() for maps that hold their whole numbers in floats.
            out[d, :, d:] = products.int().sum(0, dtype=torch.int32) >> out_shift
        return out

    return launch


def resize(given: Inputs) -> Callable[[], torch.Tensor]:
    """Average neighbours, stacked with the pixels, across and then down.

    PyTorch's `interpolate` takes no int8 on a GPU.
    """
    x = given["x"]

    def launch() -> torch.Tensor:
        wide = x.short()
        after = torch.cat((wide[..., 1:], wide[..., -1:]), -1)
        rows = torch.stack((wide, (wide + after) >> 1), -1).flatten(-2)
        below = torch.cat((rows[:, 1:], rows[:, -1:]), 1)
        return torch.stack((rows, (rows + below) >> 1), 2).flatten(1, 2).to(torch.int8)

    return launch


def warp(given: Inputs) -> Callable[[], torch.Tensor]:
    """Gather rows with a zero at either end, to which columns out of range are clamped.

    PyTorch's `grid_sample` takes no int8.
    """
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


ENTRIES = {
    "correlation": Entry(
        vendor_name="a product, a sum and a shift for each d in eager PyTorch",
        vendor=correlation,
        group="image",
    ),
    "resize": Entry(
        vendor_name="shifts, sums and stacks in eager PyTorch",
        vendor=resize,
        group="image",
    ),
    "warp": Entry(
        vendor_name="pad, two gathers and a mix in eager PyTorch",
        vendor=warp,
        group="image",
    ),
}
