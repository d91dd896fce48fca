"""Functions of elements and rows against PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from asmtune.kernels import layernorm, quantise, rmsnorm
from benchmarks.kernels.entry import Entry, Inputs


def gradients_of(forward: Callable[..., torch.Tensor], dy: str, *leaves: str) -> Any:
    """Make a vendor: what autograd runs backwards, after a forward pass that is run before.

    Args:
        forward: PyTorch's function, of the inputs by name.
        dy: name of the gradient that comes in.
        leaves: names of the inputs that get gradients.
    """

    def vendor(given: Inputs) -> Callable[[], Any]:
        roots = {name: given[name].detach().requires_grad_() for name in leaves}
        y = forward({**given, **roots})
        grad = given[dy].to(y.dtype)
        return lambda: torch.autograd.grad(y, list(roots.values()), grad, retain_graph=True)

    return vendor


def layer_norm_backward(given: Inputs) -> Callable[[], Any]:
    """Compute all three gradients; PyTorch wants mean and rstd as columns, and some bias."""
    dy, x, weight = given["dy"], given["x"], given["weight"]
    mean, rstd = given["mean"][:, None], given["rstd"][:, None]
    backward, all_three = torch.ops.aten.native_layer_norm_backward, [True] * 3
    return lambda: backward(dy, x, weight.shape, mean, rstd, weight, weight, all_three)


def rope(given: Inputs) -> Callable[[], torch.Tensor]:
    """Compute x * cos + (-x2, x1) * sin; both tables are widened before, as models keep them."""
    x = given["x"]
    cos, sin = (torch.cat((t, t), -1)[:, None, None] for t in (given["cos"], given["sin"]))

    def launch() -> torch.Tensor:
        x1, x2 = x.chunk(2, -1)
        return torch.addcmul(x * cos, torch.cat((-x2, x1), -1), sin)

    return launch


def copy(given: Inputs) -> Callable[[], Any]:
    """Copy as many bytes as are read and written: no quantisation can be faster."""
    x = given["x"]
    moved = x.numel() * (x.element_size() + 1) // 2
    source = torch.empty(moved, dtype=torch.uint8, device=x.device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _rms_norm(given: Inputs, eps: float = rmsnorm.EPS) -> torch.Tensor:
    return functional.rms_norm(given["x"], given["weight"].shape, given["weight"], eps)


ENTRIES = {
    "vector_add": Entry(
        vendor_name="torch.add",
        vendor=lambda given: lambda: torch.add(given["x"], given["y"]),
        group="element-wise",
    ),
    "gelu": Entry(
        vendor_name="torch.nn.functional.gelu",
        vendor=lambda given: lambda: functional.gelu(given["x"], approximate=given["approximate"]),
        group="element-wise",
    ),
    # PyTorch writes the mask that ours draws again.
    "dropout": Entry(
        vendor_name="torch.native_dropout",
        vendor=lambda given: lambda: torch.native_dropout(given["x"], given["p"], True),
        group="element-wise",
    ),
    # PyTorch has no one function for it: four operations.
    "rope": Entry(
        vendor_name="x * cos + cat(-x2, x1) * sin in eager PyTorch",
        vendor=rope,
        group="element-wise",
    ),
    "softmax": Entry(
        vendor_name="torch.softmax",
        vendor=lambda given: lambda: torch.softmax(given["x"], -1),
        group="softmax",
    ),
    # PyTorch writes the logarithms of all shares.
    "cross_entropy": Entry(
        vendor_name="torch.nn.functional.cross_entropy",
        vendor=lambda given: lambda: functional.cross_entropy(given["logits"], given["target"]),
        group="softmax",
    ),
    "cross_entropy_backward": Entry(
        vendor_name="backward of torch.nn.functional.cross_entropy",
        vendor=gradients_of(
            lambda given: functional.cross_entropy(
                given["logits"], given["target"], reduction="none"
            ),
            "grad",
            "logits",
        ),
        group="softmax",
    ),
    # PyTorch writes mean and rstd as well.
    "layernorm": Entry(
        vendor_name="torch.native_layer_norm",
        vendor=lambda given: (
            lambda: torch.native_layer_norm(
                given["x"], given["weight"].shape, given["weight"], given["bias"], layernorm.EPS
            )
        ),
        group="normalisation",
    ),
    "layernorm_backward": Entry(
        vendor_name="aten::native_layer_norm_backward",
        vendor=layer_norm_backward,
        group="normalisation",
    ),
    "rmsnorm": Entry(
        vendor_name="torch.nn.functional.rms_norm",
        vendor=lambda given: lambda: _rms_norm(given),
        group="normalisation",
    ),
    "rmsnorm_backward": Entry(
        vendor_name="backward of torch.nn.functional.rms_norm",
        vendor=gradients_of(_rms_norm, "dy", "x", "weight"),
        group="normalisation",
    ),
    "quantise": Entry(
        vendor_name="amax, division, clamp and cast in eager PyTorch",
        vendor=lambda given: lambda: quantise.baseline(**given),
        group="quantisation",
        others={"copy": copy},
    ),
}
