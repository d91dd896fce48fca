"""Convolution with bias and ReLU against cuDNN, of two launches and of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from benchmarks.kernels.entry import Entry, Inputs

_CALLS = 5


def vendor(given: Inputs) -> Callable[[], torch.Tensor]:
    """Launch cuDNN's fastest by its own trials (tensor cores for fp32 too), then ReLU in place."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    x, weight, bias = given["x"], given["weight"], given["bias"]
    stride, padding, relu = given["stride"], given["padding"], given["relu"]

    def launch() -> torch.Tensor:
        y = torch.nn.functional.conv2d(x, weight, bias, stride, padding)
        return y.relu_() if relu else y

    # The first of them lets cuDNN choose, which must not be timed.
    for _ in range(_CALLS):
        launch()
    return launch


def fused(given: Inputs) -> Callable[[], torch.Tensor]:
    """Launch cuDNN's own convolution with bias and ReLU in one, by its own trials as well.

    Raises:
        ValueError: ReLU is not asked for, which the function always applies.
    """
    if not given["relu"]:
        raise ValueError("conv2d: relu is False; cudnn_convolution_relu always applies it")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    x, weight, bias = given["x"], given["weight"], given["bias"]
    pairs = [[given["stride"]] * 2, [given["padding"]] * 2, [1, 1]]

    def launch() -> torch.Tensor:
        return torch.cudnn_convolution_relu(x, weight, bias, *pairs, 1)

    for _ in range(_CALLS):
        launch()
    return launch


def flops(shape: Mapping[str, int]) -> float:
    """Count a product and a sum for each tap of each pixel, taps in the padding included."""
    taps, stride = shape["taps"], shape["stride"]
    over = 2 * (taps // 2) - taps
    height, width = ((shape[name] + over) // stride + 1 for name in ("height", "width"))
    pixels = shape["batch"] * height * width
    return 2.0 * pixels * shape["filters"] * shape["channels"] * taps * taps


ENTRY = Entry(
    vendor_name="torch.nn.functional.conv2d in channels_last, then relu_",
    vendor_kind="vendor library",
    vendor=vendor,
    group="convolution",
    flops=flops,
    rates={"fp16": "fp16", "bf16": "bf16", "fp32": "tf32"},
    others={"cudnn_convolution_relu": fused},
)
