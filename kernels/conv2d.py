"""2-D convolution with bias and ReLU in one launch, as an implicit matrix product, NHWC.

y[n, f, i, j] = relu(bias[f] + sum over c, r, s of weight[f, c, r, s]
* x[n, c, i * stride + r * dilation - padding, j * stride + s * dilation - padding]),
where x reads 0 beyond its edges. A program takes BLOCK_M pixels of the result and BLOCK_N
filters, and walks the taps and, within them, blocks of channels. No matrix of windows is made:
a pixel's window is its address plus an offset that all pixels share, with a mask of its own
where taps reach beyond the edges. (Boxes of the copy engine need none, but on an H200 were
faster at none of SHAPES.) Two kinds of layers are special:

- Where channels are few (a network's first layer has 3), a row of a window is taken as one
  tap: in a padded copy of x, which a launch before makes, its pixels lie together.
- Where tiles are few, SPLIT programs share one: the last to arrive adds up their sums, always
  in the same order, so that two launches give the same bits. (7 x 7 maps take SPLIT = 2.)

Shapes: x is (batch, channels, height, width), weight (filters, channels, taps_h, taps_w), bias
(filters,); the result is (batch, filters, out_height, out_width).
Groups: of G groups of channels each has its own filters, and weight channels / G. Tiles are of one
group: with few channels a group they are mostly empty.
Dtypes: fp16, bf16, fp32 (multiplied as tf32), the same for all; accumulates in fp32.
Layout: PyTorch's channels_last: in memory x is (batch, height, width, channels), and weight
(filters, taps_h, taps_w, channels). x is read in place at any strides of its other axes (a
part of a batch or of an image); what is laid out otherwise is copied at each call. The result
is channels_last.
Backward: cuDNN's functions for x and the weights; one launch for the bias and through ReLU,
timed beside PyTorch's functions (`_conv2d_bias.py`).
Source: Chetlur et al., cuDNN: efficient primitives for deep learning, arXiv:1410.0759; the
implicit product of CUTLASS's convolutions, and its few-channels variant.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch.compiler import is_dynamo_compiling

from asmtune.core.dtypes import torch_dtype
from asmtune.core.keys.buckets import pow2
from asmtune.kernels._common import FLOATS, by_name, check_tensors, doubled, problems, vouched
from asmtune.kernels._conv2d import (
    BIASED,
    FUSED,
    PLAIN,
    Window,
    check_shapes,
    convolve,
    gradients,
    in_fixed_order,
    launch,
    store_result,
    sum_by_taps,
)
from asmtune.kernels._conv2d_bias import result_gradients
from asmtune.kernels._conv2d_host import DEFAULT, Layer, grid, layer, space
from asmtune.kernels._split import gathered
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.options import is_deterministic
from asmtune.runtime.replay_calls import replay_calls

__all__ = ["DEFAULT", "DTYPES", "conv2d", "kernel", "space"]

_PLAIN = [
    *("batch", "height", "width", "channels", "depth", "filters", "out_height", "out_width"),
    *("stride_xn", "stride_xh", "stride_xw"),
]


@triton.jit(do_not_specialize=_PLAIN)
def kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    sums_ptr,
    count_ptr,
    batch,
    height,
    width,
    channels,  # noqa: ARG001 (of the space; a copy of few channels has another depth)
    depth,
    filters,
    out_height,
    out_width,
    stride_xn,
    stride_xh,
    stride_xw,
    TAPS_H: tl.constexpr,
    TAPS_W: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    RELU: tl.constexpr,
    IN_PLACE: tl.constexpr,
    PADDED: tl.constexpr,
    GROUPS: tl.constexpr,
    MULTIPLE: tl.constexpr,
    OUT_MULTIPLE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Compute BLOCK_M pixels by BLOCK_N filters a program, or a SPLIT-th of their sums.

    Without memory for parts, as for many tiles, SPLIT changes nothing.
    """
    window: tl.constexpr = (
        TAPS_H,
        TAPS_W,
        STRIDE_H,
        STRIDE_W,
        PAD_H,
        PAD_W,
        DILATION_H,
        DILATION_W,
    )
    PARTS: tl.constexpr = 1 if sums_ptr is None else SPLIT
    filters, depth = vouched(filters, OUT_MULTIPLE), vouched(depth, MULTIPLE)
    stride_xn, stride_xh = vouched(stride_xn, MULTIPLE), vouched(stride_xh, MULTIPLE)
    x = x_ptr, stride_xn, stride_xh, vouched(stride_xw, MULTIPLE)
    sizes = batch, height, width, depth, filters, out_height, out_width
    # Tiles of the same pixels are neighbours, so that x comes from memory once, then from L2.
    tile, part = tl.program_id(0), tl.program_id(1)
    tiles_n = tl.cdiv(filters, BLOCK_N)
    local = tile
    if GROUPS > 1:
        tiles = tl.num_programs(0) // GROUPS
        group, local = tile // tiles, tile % tiles
        x = x_ptr + group * depth, x[1], x[2], x[3]
        weight_ptr += group.to(tl.int64) * filters * (TAPS_H * TAPS_W * depth)
        y_ptr += group * filters
        if bias_ptr is not None:
            bias_ptr += group * filters
    origin = local // tiles_n * BLOCK_M, local % tiles_n * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    place = acc, x, weight_ptr, sizes, origin, part
    acc = sum_by_taps(*place, window, IN_PLACE, PADDED, MULTIPLE, BLOCK_K, PARTS)
    complete = True
    if PARTS > 1:
        acc, complete = gathered(acc, sums_ptr, count_ptr, tile, part, PARTS)
    if complete:
        store_result(y_ptr, bias_ptr, sizes, origin, acc, RELU, GROUPS)


OUTPUTS = ("y_ptr",)

DTYPES = FLOATS


def _layer(size: int, channels: int, filters: int, taps: int, stride: int = 1) -> dict[str, int]:
    image = {"batch": 32, "height": size, "width": size}
    return {**image, "channels": channels, "filters": filters, "taps": taps, "stride": stride}


SHAPES = (
    _layer(56, 64, 64, 3),
    _layer(56, 64, 256, 1),
    _layer(28, 128, 128, 3),
    _layer(14, 256, 256, 3),
    _layer(7, 512, 512, 3),
    _layer(56, 256, 512, 1, 2),
    _layer(224, 3, 64, 7, 2),
)
"""Layers of ResNet-50 and ResNet-18, each in front of a ReLU."""


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `conv2d` by name, padded so that stride 1 keeps an image's size."""
    kind, taps, channels = torch_dtype(dtype), shape["taps"], shape["channels"]
    x = torch.randn(shape["batch"], channels, shape["height"], shape["width"], device=device)
    groups = shape.get("groups", 1)
    weight = torch.randn(shape["filters"], channels // groups, taps, taps, device=device)
    weight *= (channels // groups * taps * taps) ** -0.5
    bias = torch.randn(shape["filters"], device=device).to(kind)
    x, weight = (t.to(kind, memory_format=torch.channels_last) for t in (x, weight))
    settings = {"stride": shape["stride"], "padding": taps // 2, "relu": True}
    settings |= {"groups": groups} if groups > 1 else {}
    return {"x": x, "weight": weight, "bias": bias, **settings}


def baseline(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, **options: Any
) -> torch.Tensor:
    """Compute the kernel's result in PyTorch; `options` are those of `conv2d`."""
    relu = options.pop("relu", False)
    y = torch.nn.functional.conv2d(x, weight, bias, **options)
    return torch.relu(y) if relu else y


def reference(arguments: Mapping[str, Any]) -> torch.Tensor:
    """Compute the result in float64 from a problem's arguments."""
    x, weight, bias = doubled(arguments, "x_ptr", "weight_ptr", "bias_ptr")
    options: dict[str, Any] = {
        what: (arguments[f"{name}_H"], arguments[f"{name}_W"])
        for what, name in {"stride": "STRIDE", "padding": "PAD", "dilation": "DILATION"}.items()
    }
    options |= {"groups": arguments["GROUPS"], "relu": bool(arguments["RELU"])}
    return baseline(x, weight.permute(0, 3, 1, 2), bias, **options).permute(0, 2, 3, 1)


@torch.no_grad()
def _gradients(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    y: torch.Tensor | None,
    window: tuple[int, ...],
    groups: int,
    needed: tuple[bool, ...],
) -> tuple[torch.Tensor | None, ...]:
    """Compute the gradients of x, weight and bias that are needed.

    cuDNN's may add up in an order that changes, except where PyTorch is set to be deterministic or
    asmtune is.
    """
    dy = dy.contiguous(memory_format=torch.channels_last)
    dz, dbias = None, None
    is_fixed = not is_dynamo_compiling() and is_deterministic()
    if y is not None or needed[2]:
        dz, dbias = result_gradients(dy, y, needed[2])
    given = dy if dz is None else dz, x, weight, Window.of_numbers(window), groups
    with in_fixed_order() if is_fixed else nullcontext():
        return (*gradients(*given, needed[:2]), dbias)


def _cudnn(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, **options: Any
) -> torch.Tensor:
    """Compute `conv2d` by cuDNN."""
    options.pop("vendor", None)
    groups, relu = options.pop("groups", 1), options.pop("relu", False)
    return convolve(x, weight, bias, Window.of(**options), groups, relu)


@replay_calls(alternatives=dict.fromkeys((FUSED, BIASED, PLAIN), _cudnn))
def _result(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    relu: bool = False,
    vendor: bool = True,
) -> torch.Tensor:
    """Compute the result of `conv2d`; where gradients are needed, cuDNN may be called in its place.

    A prepared call of `conv2d` itself is then part of autograd's graph, and has no alternatives.
    """
    tensors = {"x": x, "weight": weight, **({} if bias is None else {"bias": bias})}
    check_tensors("conv2d", tensors, DTYPES)
    check_shapes(x, weight, bias, groups)
    conv = layer(x, weight, bias, Window.of(stride, padding, dilation), groups)
    if conv.y.numel():
        tuner = _alone
        if vendor and conv.weight.shape[1:3] == weight.shape[2:]:
            tuner = _tuned if relu else _plain if bias is None else _biased
        tuner[grid](**conv.arguments(relu=relu))
    return conv.y.permute(0, 3, 1, 2)


@replay_calls(backward=_gradients, alternatives=dict.fromkeys((FUSED, BIASED, PLAIN), _cudnn))
def conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    relu: bool = False,
    vendor: bool = True,
) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """Compute convolution with bias and ReLU by the tuned kernels, with its gradients.

    Args:
        x: (batch, channels, height, width), of a dtype of DTYPES, on a GPU, in
            `torch.channels_last`; copied at each call where its channels have gaps.
        weight: (filters, channels / groups, taps_h, taps_w), of the same dtype and memory format.
        bias: (filters,), of the same dtype.
        stride: steps of the window, one number or (down, across).
        padding: rows and columns of zeros on each side of x, one number or (down, across).
        dilation: pixels from tap to tap, one number or (down, across).
        groups: groups of channels, each of which has filters / groups filters of its own.
        relu: set negative results to 0; NaN stays.
        vendor: call cuDNN forward where tuning has found it faster, and while it has not, except
            where windows are read by rows, as of few channels. The gradients of x and weight are
            always cuDNN's.

    Returns:
        (batch, filters, out_height, out_width) in `torch.channels_last`.

    Raises:
        ValueError: shapes, dtypes or devices do not fit each other, the window is larger than the
            padded image, or a setting is out of range.
    """
    options: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
    y = _result(x, weight, bias, **options, groups=groups, relu=relu, vendor=vendor)
    window = Window.of(stride, padding, dilation).numbers
    return y, (x, weight, y if relu else None, window, groups)


def _arguments(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, groups: int = 1, relu: bool,
    **window: Any,
) -> dict[str, Any]:  # fmt: skip
    """Give the arguments of a random problem's launch by name."""
    conv: Layer = layer(x, weight, bias, Window.of(**window), groups)
    return conv.arguments(relu=relu)


problem = problems(kernel, "conv2d", inputs, _arguments, grid)
_decorated = partial(
    asm_autotune,
    space=space,
    key=[
        *(pow2("batch"), "height", "width", "channels", "depth", "filters", "TAPS_H", "TAPS_W"),
        *("GROUPS", "STRIDE_H", "STRIDE_W", "DILATION_H", "DILATION_W", "PAD_H", "PAD_W"),
        "MULTIPLE",
    ],
)
_launch_cudnn = by_name(kernel, launch)
_alone = _decorated()(kernel)
_tuned = _decorated(alternatives={FUSED: _launch_cudnn})(kernel)
_biased = _decorated(alternatives={BIASED: _launch_cudnn})(kernel)
_plain = _decorated(alternatives={PLAIN: _launch_cudnn})(kernel)
