"""RMSNorm over the last axis, forward, with 1 / root mean square kept for backward.

A row that fits a block is read once, a longer one twice.

Shapes: x is (..., cols), weight is (cols,).
Dtypes: fp32, fp16, bf16, the same for both; computed in fp32, which rstd stays.
Layout: rows at any stride; x is copied where its last axis has gaps.
Source: Zhang and Sennrich, Root mean square layer normalization, arXiv:1910.07467.
Backward: `rmsnorm_backward`.
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
    columns_from,
    doubled,
    draws,
    load_columns,
    problems,
    store_columns,
    tuners,
    vouched,
)
from asmtune.kernels._rows import ROW_KEY, checked_rows, row_axes, row_grid, whole_row_sizes
from asmtune.kernels.rmsnorm_backward import EPS, rmsnorm_backward
from asmtune.kernels.rmsnorm_backward import SHAPES as SHAPES
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

DEFAULT = Config({"ROWS": 1, "BLOCK": 4096, "STAGES": 1}, num_warps=8)
"""16 elements a thread."""

space = partial(row_axes, DEFAULT)
inputs = draws(x=("rows", "cols"), weight=("cols",))


def baseline(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    """Compute the kernel's result in PyTorch."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def reference(arguments: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Compute the result and rstd in float64 from a problem's arguments."""
    x, weight, eps = doubled(arguments, "x_ptr", "weight_ptr", "eps")
    return baseline(x, weight, eps), torch.rsqrt(x.square().mean(-1) + eps)


def _torch(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS, **_: bool) -> torch.Tensor:
    """Compute `rmsnorm` by PyTorch."""
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)


def _made(given: dict[str, Any]) -> Callable[[], None]:
    """Compute the results of a launch by PyTorch; return what makes the others, untimed."""
    x, eps = given["x_ptr"], given["eps"]
    y = _torch(x, given["weight_ptr"], eps)

    def copy() -> None:
        given["y_ptr"].copy_(y)
        torch.rsqrt(x.float().square().mean(-1).add_(eps), out=given["rstd_ptr"])

    return copy


@replay_calls(backward=rmsnorm_backward, alternatives={"torch": _torch})
def rmsnorm(
    x: torch.Tensor, weight: torch.Tensor, eps: float = EPS, *, vendor: bool = True
) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """Compute RMSNorm over the last axis by the tuned kernel, with its gradients.

    Args:
        x: (..., cols), of a dtype of DTYPES, on a GPU.
        weight: (cols,), of the same dtype.
        eps: added to the mean square.
        vendor: call PyTorch's function where tuning has found it faster, and while it has not.

    Returns:
        A tensor of x's shape and dtype.

    Raises:
        ValueError: shapes, dtypes or devices differ, or rows are empty.
    """
    arguments = _arguments(x, weight, eps)
    if x.numel():
        (_tuned if vendor else _alone)[row_grid](**arguments)
    saved = (x, arguments["weight_ptr"], arguments["rstd_ptr"])
    return arguments["y_ptr"].view(x.shape), saved


def _arguments(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> dict[str, Any]:
    """Check the arguments, and give the launch's by name, with room for the results."""
    given = checked_rows("rmsnorm", x, weight=weight)
    rows = given["x_ptr"]
    y = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    rstd = torch.empty(len(rows), dtype=torch.float32, device=x.device)
    results = {"y_ptr": y, "rstd_ptr": rstd}
    return {**given, **results, "eps": eps, **whole_row_sizes(x=rows, y=y)}


problem = problems(kernel, "rmsnorm", inputs, _arguments, row_grid)
_vendor = {"torch": by_name(kernel, _made)}
_alone, _tuned = tuners(kernel, vendor=_vendor, space=space, key=ROW_KEY)
