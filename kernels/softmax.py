"""Softmax over the last axis: exp(x - max) / sum, of rows of any width.

A row that fits a block is read once and stays in registers, several short rows a program.
A longer one is read twice: a first pass keeps, for every fourth column of a block, the
maximum so far and the sum relative to it, so that nothing is reduced across threads
before the row ends.

Shapes: any of one axis or more. Dtypes: fp32, fp16, bf16; computed in fp32.
Layout: rows at any stride; x is copied where its last axis has gaps.
Source: Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867;
Triton's tutorial 02.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.kernels._common import (
    FLOATS,
    by_name,
    draws,
    exact,
    forward_only,
    load_columns,
    problems,
    store_columns,
    tuners,
    vouched,
)
from asmtune.kernels._rows import (
    ROW_KEY,
    checked_rows,
    online_sum,
    row_axes,
    row_grid,
    whole_row_sizes,
)
from asmtune.runtime.replay_calls import replay_calls


@triton.jit(do_not_specialize=["rows", "cols", "stride_x", "stride_y"])
def kernel(
    x_ptr,
    y_ptr,
    rows,
    cols,
    stride_x,
    stride_y,
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
        x = load_columns(x_ptr, column, width, float("-inf"), WHOLE)
        e = tl.exp(x - tl.max(x, 1)[:, None])
        store_columns(y_ptr, column, width, e * (1.0 / tl.sum(e, 1))[:, None], WHOLE)
    else:
        FULL: tl.constexpr = MULTIPLE % BLOCK == 0
        top, total = online_sum(x_ptr, width, MULTIPLE, ROWS, BLOCK, STAGES)
        share = (1.0 / total)[:, None]
        for start in tl.range(0, width, BLOCK, num_stages=STAGES):
            column = start + tl.arange(0, BLOCK)[None, :]
            x = load_columns(x_ptr, column, width, float("-inf"), FULL)
            store_columns(y_ptr, column, width, tl.exp(x - top[:, None]) * share, FULL)


OUTPUTS = ("y_ptr",)

DTYPES = FLOATS

SHAPES = (
    {"rows": 1823, "cols": 781},
    {"rows": 8192, "cols": 4096},
    {"rows": 65536, "cols": 128},
    {"rows": 4096, "cols": 1000},
    {"rows": 512, "cols": 128256},
)

DEFAULT = Config({"ROWS": 1, "BLOCK": 4096, "STAGES": 1}, num_warps=8)
"""16 elements a thread."""

space = partial(row_axes, DEFAULT)
inputs = draws(x=("rows", "cols"))


def baseline(x: torch.Tensor) -> torch.Tensor:
    """Compute the kernel's result in PyTorch."""
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def _torch(x: torch.Tensor, **_: bool) -> torch.Tensor:
    """Compute `softmax` by PyTorch."""
    return torch.softmax(x, -1)


def _made(given: dict[str, Any]) -> None:
    """Compute the result of a launch by PyTorch."""
    torch.softmax(given["x_ptr"], -1, out=given["y_ptr"])


@replay_calls(alternatives={"torch": _torch})
def softmax(x: torch.Tensor, *, vendor: bool = True) -> torch.Tensor:
    """Compute softmax over the last axis by the tuned kernel.

    Args:
        x: tensor of a dtype of DTYPES, on a GPU.
        vendor: call PyTorch's function where tuning has found it faster, and while it has not.

    Returns:
        A tensor of x's shape and dtype. A row with NaN or +inf, or of -inf alone, is all NaN.

    Raises:
        ValueError: the dtype is not one of those, rows are empty, or a gradient is asked for.
    """
    forward_only("softmax", x)
    arguments = _arguments(x)
    if x.numel():
        (_tuned if vendor else _alone)[row_grid](**arguments)
    return arguments["y_ptr"].view(x.shape)


def _arguments(x: torch.Tensor) -> dict[str, Any]:
    """Check x, and give the launch's arguments by name, with room for the result."""
    rows = checked_rows("softmax", x)["x_ptr"]
    y = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    return {"x_ptr": rows, "y_ptr": y, **whole_row_sizes(x=rows, y=y)}


problem = problems(kernel, "softmax", inputs, _arguments, row_grid)
reference = exact(baseline, "x_ptr")
_vendor = {"torch": by_name(kernel, _made)}
_alone, _tuned = tuners(kernel, vendor=_vendor, space=space, key=ROW_KEY)
