"""RMSNorm backward against what autograd runs for PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from asmtune.kernels.rmsnorm_backward import EPS
from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], Any]:
    """Compute both gradients, after a forward pass that is run once, before."""
    x, weight = (given[name].detach().requires_grad_() for name in ("x", "weight"))
    y = torch.nn.functional.rms_norm(x, weight.shape, weight, EPS)
    return lambda: torch.autograd.grad(y, (x, weight), given["dy"], retain_graph=True)


ENTRY = Entry(
    vendor_name="backward of torch.nn.functional.rms_norm", vendor=vendor, group="normalisation"
)
