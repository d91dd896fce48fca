"""LayerNorm backward against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], Any]:
    """Compute all three gradients; PyTorch wants mean and rstd as columns, and some bias."""
    dy, x, weight = given["dy"], given["x"], given["weight"]
    mean, rstd = given["mean"][:, None], given["rstd"][:, None]
    backward, all_three = torch.ops.aten.native_layer_norm_backward, [True] * 3
    return lambda: backward(dy, x, weight.shape, mean, rstd, weight, weight, all_three)


ENTRY = Entry(vendor_name="aten::native_layer_norm_backward", vendor=vendor, group="normalisation")
