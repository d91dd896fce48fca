"""RMSNorm backward: gradients of x and weight in one pass over x and dy.

As `layernorm_backward`: a few programs an SM walk the rows and keep their sums for the
weight's gradient, in registers where a row fits a block, in memory of their own where it
does not. The order of every sum is fixed, so that results repeat.

Shapes: dy and x are (.., cols), weight is (cols,), rstd is (rows,), as `rmsnorm` keeps it.
Dtypes: fp32, fp16, bf16, the same for dy, x and weight; rstd fp32; computed in fp32.
Layout: rows of dy and x at any stride, without gaps.
Source: the derivative of Zhang and Sennrich's definition, arXiv:1910.07467.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.kernels import _rows
from asmtune.kernels._common import (
    FLOATS,
    columns_from,
    load_columns,
    problems,
    store_columns,
    vouched,
)
from asmtune.kernels._rows import load_tile, store_tile, walk_axes
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.replay_calls import replay_calls


@triton.jit
def row_in_blocks(
    dy_row,
    x_row,
    weight_ptr,
    dx_row,
    parts_ptr,
    rstd,
    width,
    known,
    FULL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Differentiate one row, read twice. Add to its program's parts, of `known` columns so far."""
    block = tl.arange(0, BLOCK)[None, :]
    sums = tl.zeros((1, BLOCK), tl.float32)
    for start in range(0, width, BLOCK):
        column = start + block
        hat = load_columns(x_row, column, width, 0.0, FULL) * rstd
        g = load_columns(dy_row, column, width, 0.0, FULL)
        sums += g * load_columns(weight_ptr, column, width, 0.0, FULL) * hat
    both = (tl.sum(sums, 1) / width)[:, None]
    for start in range(0, width, BLOCK):
        column = start + block
        hat = load_columns(x_row, column, width, 0.0, FULL) * rstd
        dy = load_columns(dy_row, column, width, 0.0, FULL)
        g = dy * load_columns(weight_ptr, column, width, 0.0, FULL)
        store_columns(dx_row, column, width, (g - hat * both) * rstd, FULL)
        dweight = tl.load(parts_ptr + column, mask=column < known, other=0.0) + dy * hat
        store_columns(parts_ptr, column, width, dweight, FULL)


@triton.jit(do_not_specialize=["rows", "cols", "programs", "stride_dy", "stride_x", "stride_dx"])
def kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    dx_ptr,
    parts_ptr,
    rows,
    cols,
    programs,
    stride_dy,
    stride_x,
    stride_dx,
    MULTIPLE: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Differentiate every programs-th row, ROWS at once; parts are (programs, cols) in fp32."""
    tl.static_assert(ROWS == 1 or BLOCK >= WIDTH, "rows in blocks come one at a time")
    TILE: tl.constexpr = WIDTH if BLOCK >= WIDTH else BLOCK
    FULL: tl.constexpr = MULTIPLE % TILE == 0
    width = vouched(cols, MULTIPLE)
    begin = tl.program_id(0)
    parts_ptr += tl.program_id(0).to(tl.int64) * width
    column = columns_from(0, MULTIPLE, 1, TILE)
    dweight = tl.zeros((ROWS, TILE), tl.float32)
    for first in range(begin, rows, programs * ROWS):
        row = first + programs * tl.arange(0, ROWS)
        inside = (row < rows)[:, None]
        dy_row = dy_ptr + row.to(tl.int64)[:, None] * vouched(stride_dy, MULTIPLE)
        x_row = x_ptr + row.to(tl.int64)[:, None] * vouched(stride_x, MULTIPLE)
        dx_row = dx_ptr + row.to(tl.int64)[:, None] * vouched(stride_dx, MULTIPLE)
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)[:, None]
        if BLOCK >= WIDTH:
            dy = load_tile(dy_row, column, width, inside, FULL, ROWS)
            hat = load_tile(x_row, column, width, inside, FULL, ROWS) * rstd
            everywhere = tl.broadcast_to(column, (ROWS, TILE))
            g = dy * load_columns(weight_ptr, everywhere, width, 0.0, FULL)
            both = (tl.sum(g * hat, 1) / width)[:, None]
            store_tile(dx_row, column, width, inside, (g - hat * both) * rstd, FULL, ROWS)
            dweight += dy * hat
        else:
            known = width * tl.minimum(first - begin, 1)  # none for the first row, then all
            row_in_blocks(
                *(dy_row, x_row, weight_ptr, dx_row, parts_ptr, rstd),
                *(width, known, FULL, BLOCK),
            )
            tl.debug_barrier()  # other threads may read these parts for the next rows
    if BLOCK >= WIDTH:
        tl.store(parts_ptr + column, tl.sum(dweight, 0)[None, :], mask=column < width)


OUTPUTS = ("dx_ptr", "parts_ptr")

DTYPES = FLOATS

SHAPES = (
    {"rows": 8192, "cols": 4096},
    {"rows": 32768, "cols": 768},
    {"rows": 4096, "cols": 1000},
    {"rows": 512, "cols": 65536},
)

EPS = 1e-6

DEFAULT = Config({"ROWS": 1, "BLOCK": 4096}, num_warps=8)
"""16 elements a thread, of each of four tiles."""

space = partial(walk_axes, DEFAULT)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `rmsnorm_backward` by name."""
    rows, cols, kind = shape["rows"], shape["cols"], torch_dtype(dtype)
    dy, x = (torch.randn(rows, cols, device=device).to(kind) for _ in range(2))
    rstd = torch.rsqrt(x.float().square().mean(1) + EPS)
    return {"dy": dy, "x": x, "weight": torch.randn(cols, device=device).to(kind), "rstd": rstd}


def baseline(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Compute the kernel's result in PyTorch."""
    hat, g = x * rstd[:, None], dy * weight
    both = (g * hat).mean(1, keepdim=True)
    return (g - hat * both) * rstd[:, None], (dy * hat).sum(0)


@replay_calls
def rmsnorm_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Compute the gradients of `rmsnorm` by the tuned kernel.

    Args:
        dy: (.., cols), the gradient of the result, of a dtype of DTYPES, on a GPU.
        x: of dy's shape and dtype, what was normalised.
        weight: (cols,), of the same dtype.
        rstd: (rows,), in fp32.

    Returns:
        Gradients of x and weight, of x's dtype.

    Raises:
        ValueError: shapes, dtypes or devices differ.
    """
    given = {"dy": dy, "x": x, "weight": weight}
    return _rows.differentiate("rmsnorm_backward", _tuned, _rows.of_weight, given, {"rstd": rstd})


problem = problems(kernel, "rmsnorm_backward", inputs, _rows.of_weight, _rows.walk_grid)
reference = partial(_rows.walk_reference, baseline)
_tuned = asm_autotune(space=space, key=_rows.ROW_KEY)(kernel)
