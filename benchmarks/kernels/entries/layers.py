"""Convolutions and recurrent layers against cuDNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.kernels.entry import Entry, Inputs, Shape

_CALLS = 5


def convolution(given: Inputs) -> Callable[[], torch.Tensor]:
    """Launch cuDNN's fastest by its own trials (tensor cores for fp32 too), then ReLU in place."""
    x, weight, bias = given["x"], given["weight"], given["bias"]
    stride, padding, relu = given["stride"], given["padding"], given["relu"]

    def launch() -> torch.Tensor:
        y = torch.nn.functional.conv2d(x, weight, bias, stride, padding)
        return y.relu_() if relu else y

    return _tried(launch)


def fused_convolution(given: Inputs) -> Callable[[], torch.Tensor]:
    """Launch cuDNN's own convolution with bias and ReLU in one, by its own trials as well.

    Raises:
        ValueError: ReLU is not asked for, which the function always applies.
    """
    if not given["relu"]:
        raise ValueError("conv2d: relu is False; cudnn_convolution_relu always applies it")
    operands = (given["x"], given["weight"], given["bias"])
    pairs = [[given["stride"]] * 2, [given["padding"]] * 2, [1, 1]]
    return _tried(lambda: torch.cudnn_convolution_relu(*operands, *pairs, 1))


def _tried(launch: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Call a function of cuDNN a few times: the first lets it choose, which must not be timed."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    for _ in range(_CALLS):
        launch()
    return launch


def convolution_flops(shape: Shape) -> float:
    """Count a product and a sum for each tap of each pixel, taps in the padding included."""
    taps, stride = shape["taps"], shape["stride"]
    over = 2 * (taps // 2) - taps
    height, width = ((shape[name] + over) // stride + 1 for name in ("height", "width"))
    pixels = shape["batch"] * height * width
    return 2.0 * pixels * shape["filters"] * shape["channels"] * taps * taps


def gru(given: Inputs) -> Callable[[], Any]:
    """Build `torch.nn.GRU` with its weights flattened; cuDNN and PyTorch use tf32 for fp32."""
    torch.backends.cuda.matmul.allow_tf32 = True
    x, h0 = given["x"], given["h0"][None]
    layer = torch.nn.GRU(x.shape[2], h0.shape[2]).to(device=x.device, dtype=x.dtype)
    with torch.no_grad():
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(layer, f"{name}_l0").copy_(given[name])
    layer.flatten_parameters()

    def launch() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            output, last = layer(x, h0)
        return output, last[0]

    return launch


ENTRIES = {
    "conv2d": Entry(
        vendor_name="torch.nn.functional.conv2d in channels_last, then relu_",
        vendor=convolution,
        group="convolution",
        flops=convolution_flops,
        rates={"fp16": "fp16", "bf16": "bf16", "fp32": "tf32"},
        others={"cudnn_convolution_relu": fused_convolution},
    ),
    "gru": Entry(
        vendor_name="torch.nn.GRU",
        vendor=gru,
        group="recurrent",
        dtypes=("fp16", "fp32"),
    ),
}
