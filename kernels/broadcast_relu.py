"""ReLU of a matrix plus a row of biases, on a 2-D grid: max(x + bias, 0).

Shapes: x is (rows, cols) or has more axes before the last, bias is (cols,).
Dtypes: fp32, fp16, bf16, the same for both; computed in fp32. NaN stays NaN.
Layout: rows of x at any stride; x is copied where its last axis has gaps.
Errors: ValueError where shapes, dtypes or devices differ, or a gradient is asked for.
Source: the usual tiling in two axes; masks and addresses by the contract of `_common`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.keys.buckets import pow2
from asmtune.core.space.space import Space
from asmtune.kernels._common import (
    FLOATS,
    columns_from,
    draws,
    exact,
    forward_only,
    load_columns,
    problems,
    row_sizes,
    store_columns,
    vouched,
)
from asmtune.kernels._rows import checked_rows
from asmtune.runtime.decorator import asm_autotune


@triton.jit(do_not_specialize=["rows", "cols", "stride_x", "stride_y"])
def kernel(
    x_ptr,
    bias_ptr,
    y_ptr,
    rows,
    cols,
    stride_x,
    stride_y,
    MULTIPLE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute one BLOCK_M x BLOCK_N tile a program."""
    FULL: tl.constexpr = MULTIPLE % BLOCK_N == 0
    width = vouched(cols, MULTIPLE)
    # Programs past the last row do it again: no mask is needed along the rows.
    row = tl.minimum(tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), rows - 1)
    row = row.to(tl.int64)[:, None]
    column = columns_from(tl.program_id(1) * BLOCK_N, MULTIPLE, BLOCK_M, BLOCK_N)
    bias = load_columns(bias_ptr, column, width, 0.0, FULL)
    x = load_columns(x_ptr + row * vouched(stride_x, MULTIPLE), column, width, 0.0, FULL)
    y = tl.maximum(x + bias, 0.0, propagate_nan=tl.PropagateNan.ALL)
    store_columns(y_ptr + row * vouched(stride_y, MULTIPLE), column, width, y, FULL)


OUTPUTS = ("y_ptr",)

DTYPES = FLOATS

SHAPES = (
    {"rows": 8192, "cols": 8192},
    {"rows": 4096, "cols": 1000},
    {"rows": 65536, "cols": 256},
    {"rows": 1823, "cols": 781},
)

DEFAULT = Config({"BLOCK_M": 4, "BLOCK_N": 256}, num_warps=4)
"""Eight elements a thread, whatever the width."""

inputs = draws(x=("rows", "cols"), bias=("cols",))


def space() -> Space:
    """Build the space: tiles and warps."""
    axes = {
        "BLOCK_M": (1, 2, 4, 8, 16, 32),
        "BLOCK_N": (64, 128, 256, 512, 1024, 2048),
        "num_warps": (1, 2, 4, 8),
    }
    return (
        Space(axes, default=DEFAULT)
        .where(
            "a thread has 4 to 32 elements",
            lambda BLOCK_M, BLOCK_N, num_warps: 4 <= BLOCK_M * BLOCK_N // (num_warps * 32) <= 32,
        )
        .where(
            "a tile is under twice as wide as a row",
            lambda BLOCK_N, cols: BLOCK_N <= 256 or 2 * cols > BLOCK_N,
        )
    )


def _grid(values: Mapping[str, Any]) -> tuple[int, int]:
    # Rows along x, which has room for two thousand million of them; y has for 65535.
    across = triton.cdiv(values["cols"], values["BLOCK_N"])
    return triton.cdiv(values["rows"], values["BLOCK_M"]), across


def baseline(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute the kernel's result in PyTorch."""
    return torch.relu(x + bias)


def broadcast_relu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute max(x + bias, 0) by the tuned kernel.

    Args:
        x: (..., cols), of a dtype of DTYPES, on a GPU.
        bias: (cols,), of the same dtype.

    Returns:
        A tensor of x's shape and dtype.

    Raises:
        ValueError: shapes, dtypes or devices differ, or a gradient is asked for.
    """
    forward_only("broadcast_relu", x, bias)
    arguments = _arguments(x, bias)
    if x.numel():
        _tuned[_grid](**arguments)
    return arguments["y_ptr"].view(x.shape)


def _arguments(x: torch.Tensor, bias: torch.Tensor) -> dict[str, Any]:
    """Check the arguments, and give the launch's by name, with room for the result."""
    given = checked_rows("broadcast_relu", x, bias=bias)
    rows = given["x_ptr"]
    y = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    return {**given, "y_ptr": y, **row_sizes(x=rows, y=y)}


problem = problems(kernel, "broadcast_relu", inputs, _arguments, _grid)
reference = exact(baseline, "x_ptr", "bias_ptr")
_tuned = asm_autotune(space=space, key=[pow2("rows"), "cols", "MULTIPLE"])(kernel)
