"""The vendor's convolution and its gradients: cuDNN's.

cuDNN adds a bias in its kernel only where ReLU follows; PyTorch adds it in a pass of its own else.
The tuning key tells neither bias nor ReLU. So each way of calling has a name of its own: what has
won for one of them is not called for another. Gradients have kernels, keys and names of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from asmtune.kernels._common import of_own_dtype
from asmtune.kernels._conv2d_window import Window

FUSED, BIASED, PLAIN = "cudnn_convolution_relu", "cudnn_with_bias", "cudnn"
"""The names: with ReLU, with a bias, and with neither."""

INPUT, WEIGHT = "cudnn_dgrad", "cudnn_wgrad"
"""The names of the gradients with respect to the image and to the weights."""


@dataclass(frozen=True)
class Made:
    """A tensor that the vendor has computed for a launch; a call copies it to the kernel's output.

    A race does not time the copy: public functions return the tensor itself.

    Attributes:
        tensor: what was computed.
        output: where the kernel writes the same, in the same axes.
    """

    tensor: torch.Tensor
    output: torch.Tensor

    def __call__(self) -> None:
        """Copy the tensor to the output."""
        self.output.copy_(self.tensor)


@of_own_dtype
def convolve(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    window: Window,
    groups: int,
    relu: bool,
) -> torch.Tensor:
    """Compute a convolution by cuDNN, from and to `torch.channels_last`."""
    last = torch.channels_last
    x, weight = (tensor.contiguous(memory_format=last) for tensor in (x, weight))
    pairs = (window.stride, window.padding, window.dilation)
    if relu:
        y = torch.cudnn_convolution_relu(x, weight, bias, *pairs, groups)
    else:
        y = torch.nn.functional.conv2d(x, weight, bias, *pairs, groups)
    return y.contiguous(memory_format=last)


def launch(given: Mapping[str, Any]) -> Made:
    """Call cuDNN with a launch's arguments by name."""
    weight = given["weight_ptr"].permute(0, 3, 1, 2)
    options = window_of(given), given["GROUPS"], bool(given["RELU"])
    y = convolve(given["x_ptr"], weight, given["bias_ptr"], *options)
    return Made(y, given["y_ptr"].permute(0, 3, 1, 2))


def window_of(given: Mapping[str, Any]) -> Window:
    """Return the window of a launch's arguments by name."""
    pairs = ((given[f"{name}_H"], given[f"{name}_W"]) for name in ("STRIDE", "PAD", "DILATION"))
    return Window(*pairs)


def gradient(
    of: str, dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, window: Window, groups: int
) -> torch.Tensor:
    """Compute one gradient of a convolution by cuDNN, from and to `torch.channels_last`.

    Args:
        of: INPUT or WEIGHT; of the tensor that it is the gradient of only the shape is used.
        dy: the gradient of the result.
        x: the image.
        weight: the weights.
        window: stride, padding and dilation.
        groups: groups of channels.
    """
    pairs = (window.stride, window.padding, window.dilation)
    mask = [of == INPUT, of == WEIGHT, False]
    x, weight = _laid_out(x, of == WEIGHT), _laid_out(weight, of == INPUT)
    backward = torch.ops.aten.convolution_backward
    made = backward(dy, x, weight, None, *pairs, False, (0, 0), groups, mask)
    wanted: torch.Tensor = made[0 if of == INPUT else 1]
    return wanted.contiguous(memory_format=torch.channels_last)


def _laid_out(tensor: torch.Tensor, is_read: bool) -> torch.Tensor:
    """Return a tensor in `torch.channels_last`; one that is not read is not copied to it."""
    if tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor
    if is_read:
        return tensor.contiguous(memory_format=torch.channels_last)
    return torch.empty_like(tensor, memory_format=torch.channels_last)
