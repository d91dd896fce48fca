"""LayerNorm over the last axis, forward, with mean and 1 / deviation kept for backward.

A row that fits a block is read once; its deviation is summed from centred values. In a
longer row each lane keeps a running mean and sum of squares (Welford), and all lanes are
joined at its end (Chan): one pass for both, and no cancellation where the mean is large.

Shapes: x is (..., cols), weight and bias are (cols,).
Dtypes: fp32, fp16, bf16, the same for all; computed in fp32, which mean and rstd stay.
Layout: rows at any stride; x is copied where its last axis has gaps.
Source: Ba, Kiros and Hinton, Layer normalization, arXiv:1607.06450; Welford 1962; Chan,
Golub and LeVeque 1983; Triton's tutorial 05. Backward: `layernorm_backward`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.kernels._common import (
    FLOATS,
    by_name,
    doubled,
    draws,
    load_columns,
    problems,
    store_columns,
    tuners,
    vouched,
)
from asmtune.kernels._rows import ROW_KEY, checked_rows, row_axes, row_grid, whole_row_sizes
from asmtune.kernels.layernorm_backward import EPS, layernorm_backward
from asmtune.runtime.replay_calls import replay_calls


@triton.jit
def moments(
    x_ptr, width, FULL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr
):
    """Compute mean and variance of rows that begin at `x_ptr`, read once."""
    mean = tl.zeros((ROWS, BLOCK), tl.float32)
    square = tl.zeros((ROWS, BLOCK), tl.float32)
    met = 0.0
    for start in tl.range(0, width, BLOCK, num_stages=STAGES):
        column = start + tl.arange(0, BLOCK)[None, :]
        x = load_columns(x_ptr, column, width, 0.0, FULL)
        met += 1.0
        off = tl.where(column < width, x - mean, 0.0)
        step = mean + off * (1.0 / met)
        square += off * tl.where(column < width, x - step, 0.0)
        mean = step
    # Lanes past the last column have met one element less.
    count = ((width - tl.arange(0, BLOCK) + BLOCK - 1) // BLOCK).to(tl.float32)[None, :]
    joined = tl.sum(mean * count, 1) / width
    off = mean - joined[:, None]
    return joined, tl.sum(square + count * off * off, 1) / width


@triton.jit(do_not_specialize=["rows", "cols", "stride_x", "stride_y"])
def kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    rows,
    cols,
    stride_x,
    stride_y,
    eps,
    MULTIPLE: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute ROWS rows a program; whole where WIDTH, the next power of two of cols, fits BLOCK."""
    width = vouched(cols, MULTIPLE)
    # Programs past the last row do it again: no mask is needed along the rows.
    row = tl.minimum(tl.program_id(0) * ROWS + tl.arange(0, ROWS), rows - 1).to(tl.int64)
    x_ptr += row[:, None] * vouched(stride_x, MULTIPLE)
    y_ptr += row[:, None] * vouched(stride_y, MULTIPLE)
    if BLOCK >= WIDTH:
        WHOLE: tl.constexpr = MULTIPLE % WIDTH == 0
        column = tl.arange(0, WIDTH)[None, :]
        x = load_columns(x_ptr, column, width, 0.0, WHOLE)
        weight = load_columns(weight_ptr, column, width, 0.0, WHOLE)
        bias = load_columns(bias_ptr, column, width, 0.0, WHOLE)
        mean = tl.sum(x, 1) / width
        off = tl.where(column < width, x - mean[:, None], 0.0)
        rstd = tl.rsqrt(tl.sum(off * off, 1) / width + eps)
        store_columns(y_ptr, column, width, off * rstd[:, None] * weight + bias, WHOLE)
    else:
        FULL: tl.constexpr = MULTIPLE % BLOCK == 0
        mean, variance = moments(x_ptr, width, FULL, ROWS, BLOCK, STAGES)
        rstd = tl.rsqrt(variance + eps)
        for start in tl.range(0, width, BLOCK, num_stages=STAGES):
            column = start + tl.arange(0, BLOCK)[None, :]
            x = load_columns(x_ptr, column, width, 0.0, FULL)
            weight = load_columns(weight_ptr, column, width, 0.0, FULL)
            bias = load_columns(bias_ptr, column, width, 0.0, FULL)
            y = (x - mean[:, None]) * rstd[:, None] * weight + bias
            store_columns(y_ptr, column, width, y, FULL)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


OUTPUTS = ("y_ptr", "mean_ptr", "rstd_ptr")

DTYPES = FLOATS

SHAPES = (
    {"rows": 1151, "cols": 8192},
    {"rows": 8192, "cols": 4096},
    {"rows": 32768, "cols": 768},
    {"rows": 4096, "cols": 1000},
    {"rows": 512, "cols": 65536},
)

DEFAULT = Config({"ROWS": 1, "BLOCK": 4096, "STAGES": 1}, num_warps=8)
"""16 elements a thread."""

space = partial(row_axes, DEFAULT)
inputs = draws(x=("rows", "cols"), weight=("cols",), bias=("cols",))


def baseline(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = EPS
) -> torch.Tensor:
    """Compute the kernel's result in PyTorch."""
    off = x - x.mean(-1, keepdim=True)
    return off * torch.rsqrt(off.square().mean(-1, keepdim=True) + eps) * weight + bias


def reference(arguments: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Compute the result, mean and rstd in float64 from a problem's arguments."""
    given = doubled(arguments, "x_ptr", "weight_ptr", "bias_ptr", "eps")
    x, eps = given[0], given[-1]
    return baseline(*given), x.mean(-1), torch.rsqrt(x.var(-1, correction=0) + eps)


def _torch(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = EPS, **_: bool
) -> torch.Tensor:
    """Compute `layernorm` by PyTorch."""
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)


def _made(given: dict[str, Any]) -> Callable[[], None]:
    """Compute the results of a launch by PyTorch; return what copies them, which is not timed."""
    x, weight, bias, eps = (given[name] for name in ("x_ptr", "weight_ptr", "bias_ptr", "eps"))
    results = torch.native_layer_norm(x, weight.shape, weight, bias, eps)

    def copy() -> None:
        for name, result in zip(OUTPUTS, results, strict=True):
            given[name].copy_(result.view(given[name].shape))

    return copy


@replay_calls(backward=layernorm_backward, alternatives={"torch": _torch})
def layernorm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float = EPS,
    *,
    vendor: bool = True,
) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """Compute LayerNorm over the last axis by the tuned kernel, with its gradients.

    Args:
        x: (..., cols), of a dtype of DTYPES, on a GPU.
        weight: (cols,), of the same dtype.
        bias: (cols,), of the same dtype.
        eps: added to the variance.
        vendor: call PyTorch's function where tuning has found it faster, and while it has not.

    Returns:
        A tensor of x's shape and dtype.

    Raises:
        ValueError: shapes, dtypes or devices differ, or rows are empty.
    """
    arguments = _arguments(x, weight, bias, eps)
    if x.numel():
        (_tuned if vendor else _alone)[row_grid](**arguments)
    saved = (arguments[name] for name in ("weight_ptr", "mean_ptr", "rstd_ptr"))
    return arguments["y_ptr"].view(x.shape), (x, *saved)


def _arguments(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = EPS
) -> dict[str, Any]:
    """Check the arguments, and give the launch's by name, with room for the results."""
    given = checked_rows("layernorm", x, weight=weight, bias=bias)
    rows = given["x_ptr"]
    y = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    mean, rstd = (torch.empty(len(rows), dtype=torch.float32, device=x.device) for _ in range(2))
    results = {"y_ptr": y, "mean_ptr": mean, "rstd_ptr": rstd}
    return {**given, **results, "eps": eps, **whole_row_sizes(x=rows, y=y)}


problem = problems(kernel, "layernorm", inputs, _arguments, row_grid)
_vendor = {"torch": by_name(kernel, _made)}
_alone, _tuned = tuners(kernel, vendor=_vendor, space=space, key=ROW_KEY)
