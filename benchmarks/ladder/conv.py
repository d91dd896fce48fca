"""Convolution in three steps, each without bias or activation: read it from top to bottom.

v0 direct: one program computes a pixel of the result, tap by tap, on ordinary cores. v1 im2col:
each pixel's window becomes a row of a matrix, so that a convolution is a matrix product on tensor
cores; the matrix is taps times as large as the image. v2 implicit: `asmtune.kernels.conv2d`, which
computes the addresses of that matrix and never writes it. `add_bias` and `relu` are what follows a
convolution in a network, a kernel each; v2 does both on the tile before it writes.
`python -m benchmarks.ladder.traffic` counts the bytes; docs/ladder_conv.md explains.

They are to learn from: `asmtune.kernels.conv2d` is the one to call.

Shapes: x is (batch, height, width, channels), weight (filters, taps_h, taps_w, channels), the
result (batch, out_height, out_width, filters).
Dtypes: fp16, bf16, fp32; sums in fp32. From v1 on fp32 is multiplied as tf32.
Layout: contiguous, which PyTorch calls channels_last.
Errors: ValueError for other shapes, dtypes or layouts, or 2**31 elements and more.
Source: Chellapilla et al., High performance convolutional neural networks, 2006, for im2col.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from asmtune import Config
from asmtune.kernels._conv2d_vendor import Window
from benchmarks.ladder import gemm

DIRECT = Config({"BLOCK": 64}, num_warps=2)
WINDOWS = Config({"BLOCK": 1024}, num_warps=4)
ROWS = Config({"BLOCK": 1024}, num_warps=4)


# v0: a pixel of the result by BLOCK filters a program. Weights are read again for every pixel.
@triton.jit
def direct(
    x_ptr, w_ptr, y_ptr, height, width, channels, filters, out_height, out_width,
    TAPS_H: tl.constexpr, TAPS_W: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr, PAD_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK filters of one pixel."""
    pixel, f = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    image, place = pixel // (out_height * out_width), pixel % (out_height * out_width)
    sums = tl.zeros((BLOCK,), tl.float32)
    for r in range(TAPS_H):
        for s in range(TAPS_W):
            row = place // out_width * STRIDE_H - PAD_H + r * DILATION_H
            col = place % out_width * STRIDE_W - PAD_W + s * DILATION_W
            if (row >= 0) & (row < height) & (col >= 0) & (col < width):
                x = x_ptr + ((image * height + row) * width + col) * channels
                w = w_ptr + ((f * TAPS_H + r) * TAPS_W + s) * channels
                for c in range(channels):
                    weight = tl.load(w + c, mask=f < filters, other=0.0).to(tl.float32)
                    sums += weight * tl.load(x + c).to(tl.float32)
    tl.store(y_ptr + pixel * filters + f, sums.to(y_ptr.dtype.element_ty), mask=f < filters)


def v0(x: torch.Tensor, weight: torch.Tensor, window: Window) -> torch.Tensor:
    """Compute a convolution pixel by pixel."""
    y = result(x, weight, window)
    if y.numel():
        direct[pixels(y)](**arguments(x, weight, y, window), **DIRECT.all_kwargs())
    return y


# v1: a row of the matrix holds the window of a pixel, zeros where it reaches beyond the image.
@triton.jit
def windows(
    x_ptr, m_ptr, height, width, channels, out_height, out_width,
    TAPS_H: tl.constexpr, TAPS_W: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr, PAD_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy BLOCK elements of one pixel's window: taps down, taps across, channels."""
    pixel, k = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    image, place = pixel // (out_height * out_width), pixel % (out_height * out_width)
    tap, length = k // channels, TAPS_H * TAPS_W * channels
    row = place // out_width * STRIDE_H - PAD_H + tap // TAPS_W * DILATION_H
    col = place % out_width * STRIDE_W - PAD_W + tap % TAPS_W * DILATION_W
    there = (row >= 0) & (row < height) & (col >= 0) & (col < width) & (k < length)
    x = x_ptr + ((image * height + row) * width + col) * channels + k % channels
    tl.store(m_ptr + pixel * length + k, tl.load(x, mask=there, other=0.0), mask=k < length)


def v1(x: torch.Tensor, weight: torch.Tensor, window: Window) -> torch.Tensor:
    """Compute a convolution as a matrix product of windows and weights."""
    y = result(x, weight, window)
    if y.numel():
        matrix = x.new_empty(y.numel() // y.shape[3], weight[0].numel())
        given = {**arguments(x, weight, y, window), "m_ptr": matrix}
        given = {name: value for name, value in given.items() if name in windows.arg_names}
        columns = triton.cdiv(matrix.shape[1], WINDOWS.kwargs["BLOCK"])
        windows[(len(matrix), columns)](**given, **WINDOWS.all_kwargs())
        operands = gemm.arguments(matrix, weight.view(len(weight), -1).T.contiguous())
        operands["c_ptr"] = y.view(len(matrix), len(weight))
        gemm.launched(gemm.pipelined, gemm.tiles, operands, gemm.V2)
    return y


# What follows, if it is not done on the tile: each reads all pixels again, and writes all again.
@triton.jit
def add_bias(y_ptr, bias_ptr, z_ptr, n, filters, BLOCK: tl.constexpr):
    """Add the bias of their filters to BLOCK elements of y."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < n).to(tl.float32)
    z = y + tl.load(bias_ptr + at % filters, mask=at < n).to(tl.float32)
    tl.store(z_ptr + at, z.to(z_ptr.dtype.element_ty), mask=at < n)


@triton.jit
def relu(y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """Set BLOCK elements of y to 0 where they are negative; NaN stays."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(z_ptr + at, tl.where(y < 0, 0.0, y), mask=at < n)


def pixels(y: torch.Tensor) -> tuple[int, int]:
    """Give v0's grid: pixels of the result, and blocks of filters."""
    return y.numel() // y.shape[3], triton.cdiv(y.shape[3], DIRECT.kwargs["BLOCK"])


def result(x: torch.Tensor, weight: torch.Tensor, window: Window) -> torch.Tensor:
    """Allocate the result; raise ValueError if the tensors do not fit."""
    what = f"x {tuple(x.shape)} {x.dtype} and weight {tuple(weight.shape)} {weight.dtype}"
    if x.ndim != 4 or weight.ndim != 4 or x.shape[3] != weight.shape[3] or not x.shape[3]:
        raise ValueError(f"{what}: expected (batch, height, width, C), (filters, taps, taps, C)")
    if x.dtype not in gemm.DTYPES or x.dtype != weight.dtype or x.device != weight.device:
        raise ValueError(f"{what}: the dtypes must be equal, and fp16, bf16 or fp32, on one device")
    if not (x.is_contiguous() and weight.is_contiguous()):
        raise ValueError(f"{what}: both must be contiguous; call .contiguous()")
    extent = window.out_size(x.shape[1:3], weight.shape[1:3])
    y = x.new_empty(len(x), *extent, len(weight))
    if max(x.numel(), y.numel(), y.numel() // max(1, len(weight)) * weight[:1].numel()) >= 2**31:
        raise ValueError(f"{what}: image, windows and result must have fewer than 2**31 elements")
    return y


def arguments(
    x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, window: Window
) -> dict[str, Any]:
    """Give v0's arguments by name."""
    sizes = {"height": x.shape[1], "width": x.shape[2], "channels": x.shape[3]}
    sizes |= {"filters": len(weight), "out_height": y.shape[1], "out_width": y.shape[2]}
    pairs = {"TAPS": weight.shape[1:3], "STRIDE": window.stride, "PAD": window.padding}
    pairs |= {"DILATION": window.dilation}
    numbers = {
        f"{name}_{axis}": pair["HW".index(axis)] for name, pair in pairs.items() for axis in "HW"
    }
    return {"x_ptr": x, "w_ptr": weight, "y_ptr": y, **sizes, **numbers}
