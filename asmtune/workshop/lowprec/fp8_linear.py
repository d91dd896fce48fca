"""`Fp8Linear`: a linear layer in FP8 by plain PyTorch, and models that have some."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from asmtune.base.errors import InputError
from asmtune.workshop.lowprec.casting import Granularity, amax_of, dequantize, quantize
from asmtune.workshop.lowprec.layers import check_module
from asmtune.workshop.lowprec.scaler import Scaler

PER_ROW = Granularity((1, -1))


class Fp8Linear(nn.Module):
    """Multiplies an FP8 input by an FP8 weight, rounded as a kernel with FP8 operands rounds them.

    The weight is cast once, with a scale per output. The input is cast by a scaler, which a call in
    training mode updates before, and a call in evaluation mode never, unless it has seen nothing.
    The product is that of the stored numbers in the input's own dtype: errors are those of FP8
    operands, and no time is saved. Gradients pass through the rounding of the input unchanged.

    Args:
        linear: the layer to copy.
        scaler: options of the input's scaler; None for one running scale per tensor.
    """

    weight: torch.Tensor
    weight_scale: torch.Tensor

    def __init__(self, linear: nn.Linear, scaler: Scaler | None = None) -> None:
        super().__init__()
        self.scaler = Scaler() if scaler is None else replace(scaler)
        amax, _ = amax_of(linear.weight, PER_ROW)
        scale = torch.where(amax > 0, amax / torch.finfo(self.scaler.dtype).max, 1.0)
        self.register_buffer("weight_scale", scale)
        # FP8 would not outlive `model.to(dtype)`.
        stored = quantize(linear.weight.detach(), scale, self.scaler.dtype)
        self.register_buffer("weight", stored.view(torch.uint8))
        self.bias = linear.bias
        self.train(linear.training)
        # A hook: PyTorch's fused transformer layers would read the bytes as the weight.
        self.register_forward_pre_hook(_pass)

    def get_extra_state(self) -> Any:
        """Return the scaler's state, which `state_dict()` of a model holds by this."""
        return self.scaler.state_dict()

    def set_extra_state(self, state: Any) -> None:
        """Load the scaler's state.

        Raises:
            InputError: it is of other options, or malformed.
        """
        self.scaler.load_state_dict(state)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return values @ weight^T + bias in the dtype of the values."""
        dtype, stored = values.dtype, self.weight.view(self.scaler.dtype)
        weight = dequantize(stored, self.weight_scale, dtype)
        if not values.numel():  # such as an expert that no token is routed to
            return nn.functional.linear(values, weight, self.bias)
        if self.training or not self.scaler.updates:
            self.scaler.update(values)
        rounded = self.scaler.dequantize(self.scaler.quantize(values.detach()), dtype)
        passed: torch.Tensor = _PassThrough.apply(values, rounded)  # type: ignore[no-untyped-call]
        return nn.functional.linear(passed, weight, self.bias)


def _pass(*_: Any) -> None: ...


class _PassThrough(torch.autograd.Function):
    """Gives rounded values, and their gradient to the values before they were rounded.

    The gradient of a cast would be FP8 itself, without a scale: below 2^-10 it would be zero.
    """

    @staticmethod
    def forward(_: Any, __: torch.Tensor, rounded: torch.Tensor) -> torch.Tensor:
        """Return the rounded values."""
        return rounded

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient of the values, none of the rounded ones."""
        return gradient, None


def with_fp8(
    model: nn.Module, names: Iterable[str] | None = None, scaler: Scaler | None = None
) -> nn.Module:
    """Return a copy of a model with linear layers in FP8.

    Args:
        model: left as it is.
        names: layers to convert; by default every `nn.Linear`. A layer that the model holds under
            several names stays one.
        scaler: options of the inputs' scalers.

    Raises:
        InputError: the model is no module, or a name is no linear layer's.
    """
    made = copy.deepcopy(check_module("with_fp8: model", model))
    modules = dict(made.named_modules(remove_duplicate=False))
    linears = {name: module for name, module in modules.items() if type(module) is nn.Linear}
    chosen = list(linears if names is None else names)
    unknown = [name for name in chosen if name not in linears]
    if unknown:
        raise InputError(
            f"with_fp8: {unknown[0]!r} is no nn.Linear of the model, which has {', '.join(linears)}"
        )
    converted = {linears[name]: Fp8Linear(linears[name], scaler) for name in chosen}
    if made in converted:
        return converted[made]
    for name, module in linears.items():
        if module in converted:
            made.set_submodule(name, converted[module])
    for part in made.modules():
        if isinstance(part, nn.TransformerEncoder):
            part.use_nested_tensor = False  # nested tensors need the fused path
    return made
