"""Cross entropy backward against what autograd runs for PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.kernels.entry import Entry, Inputs


def vendor(given: Inputs) -> Callable[[], Any]:
    """Compute the gradient of the logits, after a forward pass that is run once, before."""
    logits = given["logits"].detach().requires_grad_()
    losses = torch.nn.functional.cross_entropy(logits, given["target"], reduction="none")
    grad = given["grad"].to(losses.dtype)
    return lambda: torch.autograd.grad(losses, logits, grad, retain_graph=True)


ENTRY = Entry(
    vendor_name="backward of torch.nn.functional.cross_entropy", vendor=vendor, group="softmax"
)
