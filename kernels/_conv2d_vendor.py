"""The vendor's convolution: cuDNN's, in one kernel with bias and ReLU, or alone.

cuDNN adds a bias in its kernel only where ReLU follows; PyTorch adds it in a pass of its own else.
The tuning key tells neither bias nor ReLU. So each way of calling has a name of its own: what has
won for one of them is not called for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from asmtune.kernels._common import of_own_dtype
from asmtune.kernels._conv2d_window import Window

FUSED, BIASED, PLAIN = "cudnn_convolution_relu", "cudnn_with_bias", "cudnn"
"""The names: with ReLU, with a bias, and with neither."""


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


def launch(given: Mapping[str, Any]) -> Any:
    """Call cuDNN with a launch's arguments by name; return what copies the result.

    A race does not time the copy: a call of `conv2d` without gradients makes none.
    """
    pairs = ((given[f"{name}_H"], given[f"{name}_W"]) for name in ("STRIDE", "PAD", "DILATION"))
    weight = given["weight_ptr"].permute(0, 3, 1, 2)
    options = Window(*pairs), given["GROUPS"], bool(given["RELU"])
    y = convolve(given["x_ptr"], weight, given["bias_ptr"], *options)
    return partial(given["y_ptr"].permute(0, 3, 1, 2).copy_, y)
