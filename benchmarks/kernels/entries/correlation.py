"""Correlation against PyTorch, which has no function for it: products and sums of each shift."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], torch.Tensor]:
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


ENTRY = Entry(
    vendor_name="a product, a sum and a shift for each d in eager PyTorch",
    vendor_kind="eager PyTorch",
    vendor=vendor,
    group="image",
)
