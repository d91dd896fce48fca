"""LayerNorm backward: gradients of x, weight and bias in one pass over x and dy.

A few programs an SM walk the rows. Each keeps its sums for the weight's and the bias's
gradients in registers where a row fits a block, in memory of its own where it does not,
and writes them once. A second kernel sums those parts, a tenth of the traffic or less where
rows are thousands.
The order of every sum is fixed, so that results repeat.

Shapes: dy and x are (.., cols), weight (cols,), mean and rstd (rows,), as `layernorm` keeps.
Dtypes: fp32, fp16, bf16, the same for dy, x and weight; mean and rstd fp32; computed in fp32.
Layout: rows of dy and x at any stride, without gaps.
Source: the derivative as in Triton's tutorial 05; the sums without its locks.
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
from asmtune.kernels._common import FLOATS, load_columns, problems, store_columns, vouched
from asmtune.kernels._rows import load_tile, store_tile, walk_axes
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.replay_calls import replay_calls


@triton.jit
def row_in_blocks(
    dy_row,
    x_row,
    weight_ptr,
    dx_row,
    weight_parts,
    bias_parts,
    mean,
    rstd,
    width,
    known,
    FULL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Differentiate one row, read twice. Add to its program's parts, of `known` columns so far."""
    block = tl.arange(0, BLOCK)[None, :]
    sum_both = tl.zeros((1, BLOCK), tl.float32)
    sum_alone = tl.zeros((1, BLOCK), tl.float32)
    for start in range(0, width, BLOCK):
        column = start + block
        # Columns past the last have no dy, so that what is left of the mean does not count.
        hat = (load_columns(x_row, column, width, 0.0, FULL) - mean) * rstd
        g = load_columns(dy_row, column, width, 0.0, FULL)
        g *= load_columns(weight_ptr, column, width, 0.0, FULL)
        sum_both += g * hat
        sum_alone += g
    both = (tl.sum(sum_both, 1) / width)[:, None]
    alone = (tl.sum(sum_alone, 1) / width)[:, None]
    for start in range(0, width, BLOCK):
        column = start + block
        hat = (load_columns(x_row, column, width, 0.0, FULL) - mean) * rstd
        dy = load_columns(dy_row, column, width, 0.0, FULL)
        g = dy * load_columns(weight_ptr, column, width, 0.0, FULL)
        store_columns(dx_row, column, width, (g - hat * both - alone) * rstd, FULL)
        dweight = tl.load(weight_parts + column, mask=column < known, other=0.0) + dy * hat
        dbias = tl.load(bias_parts + column, mask=column < known, other=0.0) + dy
        store_columns(weight_parts, column, width, dweight, FULL)
        store_columns(bias_parts, column, width, dbias, FULL)


@triton.jit(do_not_specialize=["rows", "cols", "programs", "stride_dy", "stride_x", "stride_dx"])
def kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
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
    """Differentiate every programs-th row, ROWS at once; parts are (2, programs, cols) in fp32."""
    tl.static_assert(ROWS == 1 or BLOCK >= WIDTH, "rows in blocks come one at a time")
    TILE: tl.constexpr = WIDTH if BLOCK >= WIDTH else BLOCK
    FULL: tl.constexpr = MULTIPLE % TILE == 0
    width = vouched(cols, MULTIPLE)
    begin = tl.program_id(0)
    weight_parts = parts_ptr + tl.program_id(0).to(tl.int64) * width
    bias_parts = weight_parts + programs.to(tl.int64) * width
    column = tl.arange(0, TILE)[None, :]
    dweight = tl.zeros((ROWS, TILE), tl.float32)
    dbias = tl.zeros((ROWS, TILE), tl.float32)
    for first in range(begin, rows, programs * ROWS):
        row = first + programs * tl.arange(0, ROWS)
        inside = (row < rows)[:, None]
        dy_row = dy_ptr + row.to(tl.int64)[:, None] * vouched(stride_dy, MULTIPLE)
        x_row = x_ptr + row.to(tl.int64)[:, None] * vouched(stride_x, MULTIPLE)
        dx_row = dx_ptr + row.to(tl.int64)[:, None] * vouched(stride_dx, MULTIPLE)
        mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)[:, None]
        if BLOCK >= WIDTH:
            dy = load_tile(dy_row, column, width, inside, FULL, ROWS)
            hat = (load_tile(x_row, column, width, inside, FULL, ROWS) - mean) * rstd
            g = dy * load_columns(weight_ptr, column, width, 0.0, FULL)
            both = (tl.sum(g * hat, 1) / width)[:, None]
            alone = (tl.sum(g, 1) / width)[:, None]
            store_tile(dx_row, column, width, inside, (g - hat * both - alone) * rstd, FULL, ROWS)
            dweight += dy * hat
            dbias += dy
        else:
            known = width * tl.minimum(first - begin, 1)  # none for the first row, then all
            row_in_blocks(
                *(dy_row, x_row, weight_ptr, dx_row, weight_parts, bias_parts),
                *(mean, rstd, width, known, FULL, BLOCK),
            )
            tl.debug_barrier()  # other threads may read these parts for the next rows
    if BLOCK >= WIDTH:
        tl.store(weight_parts + column, tl.sum(dweight, 0)[None, :], mask=column < width)
        tl.store(bias_parts + column, tl.sum(dbias, 0)[None, :], mask=column < width)


OUTPUTS = ("dx_ptr", "parts_ptr")

DTYPES = FLOATS

SHAPES = (
    {"rows": 8192, "cols": 4096},
    {"rows": 1151, "cols": 8192},
    {"rows": 32768, "cols": 768},
    {"rows": 4096, "cols": 1000},
    {"rows": 512, "cols": 65536},
)

EPS = 1e-5

DEFAULT = Config({"ROWS": 1, "BLOCK": 4096}, num_warps=8)
"""16 elements a thread, of each of five tiles."""

space = partial(walk_axes, DEFAULT)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `layernorm_backward` by name."""
    rows, cols, kind = shape["rows"], shape["cols"], torch_dtype(dtype)
    dy, x = (torch.randn(rows, cols, device=device).to(kind) for _ in range(2))
    weight, wide = torch.randn(cols, device=device).to(kind), x.float()
    rstd = torch.rsqrt(wide.var(1, correction=0) + EPS)
    return {"dy": dy, "x": x, "weight": weight, "mean": wide.mean(1), "rstd": rstd}


def baseline(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Compute the kernel's result in PyTorch."""
    hat, g = (x - mean[:, None]) * rstd[:, None], dy * weight
    both, alone = (g * hat).mean(1, keepdim=True), g.mean(1, keepdim=True)
    return (g - hat * both - alone) * rstd[:, None], (dy * hat).sum(0), dy.sum(0)


@replay_calls
def layernorm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Compute the gradients of `layernorm` by the tuned kernel.

    Args:
        dy: (.., cols), the gradient of the result, of a dtype of DTYPES, on a GPU.
        x: of dy's shape and dtype, what was normalised.
        weight: (cols,), of the same dtype.
        mean: (rows,), in fp32.
        rstd: (rows,), in fp32.

    Returns:
        Gradients of x, weight and bias, of x's dtype.

    Raises:
        ValueError: shapes, dtypes or devices differ.
    """
    given = {"dy": dy, "x": x, "weight": weight}
    saved = {"mean": mean, "rstd": rstd}
    return _rows.differentiate("layernorm_backward", _tuned, _rows.of_both, given, saved)


problem = problems(kernel, "layernorm_backward", inputs, _rows.of_both, _rows.walk_grid)
reference = partial(_rows.walk_reference, baseline)
_tuned = asm_autotune(space=space, key=_rows.ROW_KEY)(kernel)
