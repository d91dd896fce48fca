"""RMSNorm over the last axis, forward, with 1 / root mean square kept for backward.

A row that fits a block is read once, a longer one twice.

Shapes: x is (..., cols), weight is (cols,).
Dtypes: fp32, fp16, bf16, the same for both; computed in fp32, which rstd stays.
Layout: rows at any stride; x is copied where its last axis has gaps.
Errors: ValueError where shapes, dtypes or devices differ, or rows are empty.
Source: Zhang and Sennrich, Root mean square layer normalization, arXiv:1910.07467.
Backward: `rmsnorm_backward`.
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
    columns_from,
    load_columns,
    store_columns,
    vouched,
)
from asmtune.kernels._rows import row_axes, row_grid, whole_row_sizes
from asmtune.kernels.rmsnorm_backward import rmsnorm_backward
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.replay_calls import replay_calls


@triton.jit(do_not_specialize=["rows", "cols", "stride_x", "stride_y"])
def kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
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
        column = columns_from(0, MULTIPLE, 1, WIDTH)
        x = load_columns(x_ptr, column, width, 0.0, WHOLE)
        weight = load_columns(weight_ptr, column, width, 0.0, WHOLE)
        rstd = tl.rsqrt(tl.sum(x * x, 1) / width + eps)
        store_columns(y_ptr, column, width, x * rstd[:, None] * weight, WHOLE)
    else:
        FULL: tl.constexpr = MULTIPLE % BLOCK == 0
        # The rows of all programs at work are to stay in L2 until they have been read again:
        # 132 rows of 65536 in fp32 are 33 MiB of its 50, which results would take otherwise.
        square = tl.zeros((ROWS, BLOCK), tl.float32)
        for start in tl.range(0, width, BLOCK, num_stages=STAGES):
            column = start + tl.arange(0, BLOCK)[None, :]
            x = load_columns(x_ptr, column, width, 0.0, FULL, "evict_last")
            square += x * x
        rstd = tl.rsqrt(tl.sum(square, 1) / width + eps)
        for start in tl.range(0, width, BLOCK, num_stages=STAGES):
            column = columns_from(start, MULTIPLE, 1, BLOCK)
            x = load_columns(x_ptr, column, width, 0.0, FULL, "evict_first")
            weight = load_columns(weight_ptr, column, width, 0.0, FULL)
            y = x * rstd[:, None] * weight
            store_columns(y_ptr, column, width, y, FULL, "evict_first")
    tl.store(rstd_ptr + row, rstd)


OUTPUTS = ("y_ptr", "rstd_ptr")

DTYPES = FLOATS

SHAPES = (
    {"rows": 8192, "cols": 4096},
    {"rows": 32768, "cols": 768},
    {"rows": 4096, "cols": 1000},
    {"rows": 512, "cols": 65536},
)

EPS = 1e-6

DEFAULT = Config({"ROWS": 1, "BLOCK": 4096, "STAGES": 1}, num_warps=8)
"""16 elements a thread."""


def space() -> Space:
    """Build the space of `row_axes`."""
    return row_axes(DEFAULT)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `rmsnorm` by name."""
    kind = torch_dtype(dtype)
    x = torch.randn(shape["rows"], shape["cols"], device=device).to(kind)
    return {"x": x, "weight": torch.randn(shape["cols"], device=device).to(kind)}


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on a random matrix of rows x cols."""
    arguments = _arguments(**inputs(shape, dtype, device), eps=EPS)
    return Problem(kernel, arguments, row_grid, shape, "rmsnorm")


def baseline(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """Compute the kernel's result in PyTorch."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def reference(arguments: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Compute the result and rstd in float64 from a problem's arguments."""
    x, weight = arguments["x_ptr"].double(), arguments["weight_ptr"].double()
    rstd = torch.rsqrt(x.square().mean(-1) + arguments["eps"])
    return baseline(x, weight, arguments["eps"]), rstd


@replay_calls
def _backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor, vendor: bool
) -> tuple[torch.Tensor, ...]:
    dx, dweight = rmsnorm_backward(as_rows(grad), as_rows(x), weight, rstd, vendor=vendor)
    return dx.view(grad.shape), dweight


def _by_torch(
    x_ptr: torch.Tensor,
    weight_ptr: torch.Tensor,
    y_ptr: torch.Tensor,
    rstd_ptr: torch.Tensor,
    *numbers: Any,
) -> None:
    """Launch PyTorch's kernel with the arguments of this one."""
    y, rstd = torch._fused_rms_norm(x_ptr, weight_ptr.shape, weight_ptr, numbers[_EPS])
    y_ptr.copy_(y)
    rstd_ptr.copy_(rstd.view(-1))


def _rms_norm_of_torch(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float = EPS,
    *,
    vendor: bool = True,  # noqa: ARG001
) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)


@replay_calls(backward=_backward, alternatives={"torch": _rms_norm_of_torch})
def rmsnorm(
    x: torch.Tensor, weight: torch.Tensor, eps: float = EPS, *, vendor: bool = True
) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """Compute RMSNorm over the last axis by the tuned kernel, with its gradients.

    Args:
        x: (..., cols), of a dtype of DTYPES, on a GPU.
        weight: (cols,), of the same dtype.
        eps: added to the mean square.
        vendor: call PyTorch's function where tuning has found it faster, backward too.

    Returns:
        A tensor of x's shape and dtype.

    Raises:
        ValueError: shapes, dtypes or devices differ, or rows are empty.
    """
    check_tensors("rmsnorm", {"x": x, "weight": weight}, DTYPES)
    check_rows("rmsnorm", x)
    check_shape("rmsnorm", "weight", weight, x.shape[-1:])
    weight = weight.contiguous()
    arguments = _arguments(as_rows(x), weight, eps)
    if x.numel():
        (_tuned if vendor else _alone)[row_grid](**arguments)
    return arguments["y_ptr"].view(x.shape), (x, weight, arguments["rstd_ptr"], vendor)


def _arguments(x: torch.Tensor, weight: torch.Tensor, eps: float) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the results."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rstd = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    tensors = {"x_ptr": x, "weight_ptr": weight, "y_ptr": y, "rstd_ptr": rstd}
    return {**tensors, "eps": eps, **whole_row_sizes(x=x, y=y)}


_EPS = kernel.arg_names.index("eps") - 4
_KEY = (pow2("rows"), "cols", "MULTIPLE")
_tuned = asm_autotune(space=space, key=_KEY, alternatives={"torch": _by_torch})(kernel)
_alone = asm_autotune(space=space, key=_KEY)(kernel)
