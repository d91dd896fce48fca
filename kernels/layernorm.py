"""LayerNorm over the last axis, forward, with mean and 1 / deviation kept for backward.

A row that fits a block is read once; its deviation is summed from centred values. In a
longer row each lane keeps a running mean and sum of squares (Welford), and all lanes are
joined at its end (Chan): one pass for both, and no cancellation where the mean is large.

Shapes: x is (..., cols), weight and bias are (cols,).
Dtypes: fp32, fp16, bf16, the same for all; computed in fp32, which mean and rstd stay.
Layout: rows at any stride; x is copied where its last axis has gaps.
Errors: ValueError where shapes, dtypes or devices differ, or rows are empty.
Source: Ba, Kiros and Hinton, Layer normalization, arXiv:1607.06450; Welford 1962; Chan,
Golub and LeVeque 1983; Triton's tutorial 05. Backward: `layernorm_backward`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.core.keys.buckets import pow2
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.kernels._common import (
    FLOATS,
    as_rows,
    check_rows,
    check_shape,
    check_tensors,
    load_columns,
    store_columns,
    vouched,
)
from asmtune.kernels._rows import row_axes, row_grid, whole_row_sizes
from asmtune.kernels.layernorm_backward import layernorm_backward
from asmtune.runtime.decorator import asm_autotune
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

EPS = 1e-5

DEFAULT = Config({"ROWS": 1, "BLOCK": 4096, "STAGES": 1}, num_warps=8)
"""16 elements a thread."""


def space() -> Space:
    """Build the space of `row_axes`."""
    return row_axes(DEFAULT)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `layernorm` by name."""
    extents = {"x": (shape["rows"], shape["cols"]), "weight": (shape["cols"],)}
    extents["bias"] = extents["weight"]
    kind = torch_dtype(dtype)
    return {name: torch.randn(size, device=device).to(kind) for name, size in extents.items()}


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on a random matrix of rows x cols."""
    arguments = _arguments(**inputs(shape, dtype, device), eps=EPS)
    return Problem(kernel, arguments, row_grid, shape, "layernorm")


def baseline(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = EPS
) -> torch.Tensor:
    """Compute the kernel's result in PyTorch."""
    off = x - x.mean(-1, keepdim=True)
    return off * torch.rsqrt(off.square().mean(-1, keepdim=True) + eps) * weight + bias


def reference(arguments: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Compute the result, mean and rstd in float64 from a problem's arguments."""
    x, weight, bias = (arguments[name].double() for name in ("x_ptr", "weight_ptr", "bias_ptr"))
    rstd = torch.rsqrt(x.var(-1, correction=0) + arguments["eps"])
    return baseline(x, weight, bias, arguments["eps"]), x.mean(-1), rstd


@replay_calls
def _backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    vendor: bool,
) -> tuple[torch.Tensor, ...]:
    dx, dweight, dbias = layernorm_backward(
        as_rows(grad), as_rows(x), weight, mean, rstd, vendor=vendor
    )
    return dx.view(grad.shape), dweight, dbias


def _by_torch(
    x_ptr: torch.Tensor,
    weight_ptr: torch.Tensor,
    bias_ptr: torch.Tensor,
    y_ptr: torch.Tensor,
    mean_ptr: torch.Tensor,
    rstd_ptr: torch.Tensor,
    *numbers: Any,
) -> None:
    """Launch PyTorch's kernel with the arguments of this one."""
    torch.ops.aten.native_layer_norm.out(
        *(x_ptr, weight_ptr.shape, weight_ptr, bias_ptr, numbers[_EPS]),
        out0=y_ptr,
        out1=mean_ptr[:, None],
        out2=rstd_ptr[:, None],
    )


def _layer_norm_of_torch(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float = EPS,
    *,
    vendor: bool = True,  # noqa: ARG001
) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)


@replay_calls(backward=_backward, alternatives={"torch": _layer_norm_of_torch})
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
        vendor: call PyTorch's function where tuning has found it faster, backward too.

    Returns:
        A tensor of x's shape and dtype.

    Raises:
        ValueError: shapes, dtypes or devices differ, or rows are empty.
    """
    check_tensors("layernorm", {"x": x, "weight": weight, "bias": bias}, DTYPES)
    check_rows("layernorm", x)
    check_shape("layernorm", "weight", weight, x.shape[-1:])
    check_shape("layernorm", "bias", bias, x.shape[-1:])
    weight = weight.contiguous()
    arguments = _arguments(as_rows(x), weight, bias.contiguous(), eps)
    if x.numel():
        (_tuned if vendor else _alone)[row_grid](**arguments)
    saved = (x, weight, arguments["mean_ptr"], arguments["rstd_ptr"], vendor)
    return arguments["y_ptr"].view(x.shape), saved


def _arguments(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the results."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    mean, rstd = (torch.empty(len(x), dtype=torch.float32, device=x.device) for _ in range(2))
    tensors = {"x_ptr": x, "weight_ptr": weight, "bias_ptr": bias, "y_ptr": y}
    results = {"mean_ptr": mean, "rstd_ptr": rstd}
    return {**tensors, **results, "eps": eps, **whole_row_sizes(x=x, y=y)}


_EPS = kernel.arg_names.index("eps") - 6
_KEY = (pow2("rows"), "cols", "MULTIPLE")
_tuned = asm_autotune(space=space, key=_KEY, alternatives={"torch": _by_torch})(kernel)
_alone = asm_autotune(space=space, key=_KEY)(kernel)
