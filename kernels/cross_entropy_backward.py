"""Cross entropy backward: (exp(x - lse) - [column == target]) * gradient of the row's loss.

Element-wise, since forward has kept the logarithm of each row's sum: logits are read once
and their gradient is written once, in tiles on a 2-D grid.

Shapes: grad, target and lse are (rows,), logits are (rows, cols).
Dtypes: logits fp32, fp16 or bf16; grad and lse fp32; target int64; computed in fp32.
Layout: rows of logits at any stride, without gaps; grad at any stride, 0 as well.
Targets: the gradient of a row whose target is outside 0 to cols - 1 is that of the sum alone.
Source: the derivative of `cross_entropy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.core.space.space import Space
from asmtune.kernels._common import (
    FLOATS,
    as_rows,
    check_shape,
    check_tensors,
    exact,
    load_columns,
    problems,
    row_sizes,
    store_columns,
    vouched,
)
from asmtune.kernels._rows import ROW_KEY
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.replay_calls import replay_calls


@triton.jit(do_not_specialize=["rows", "cols", "stride_grad", "stride_x", "stride_dx", "ignored"])
def kernel(
    grad_ptr,
    x_ptr,
    target_ptr,
    lse_ptr,
    dx_ptr,
    rows,
    cols,
    stride_grad,
    stride_x,
    stride_dx,
    ignored,
    MULTIPLE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute one ROWS x BLOCK tile a program."""
    FULL: tl.constexpr = MULTIPLE % BLOCK == 0
    width = vouched(cols, MULTIPLE)
    # Programs past the last row do it again: no mask is needed along the rows.
    row = tl.minimum(tl.program_id(0) * ROWS + tl.arange(0, ROWS), rows - 1).to(tl.int64)
    column = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    grad = tl.load(grad_ptr + row * stride_grad)[:, None]
    target = tl.load(target_ptr + row)[:, None]
    lse = tl.load(lse_ptr + row)[:, None]
    x_row = x_ptr + row[:, None] * vouched(stride_x, MULTIPLE)
    dx_row = dx_ptr + row[:, None] * vouched(stride_dx, MULTIPLE)
    x = load_columns(x_row, column, width, 0.0, FULL)
    dx = (tl.exp(x - lse) - tl.where(column == target, 1.0, 0.0)) * grad
    store_columns(dx_row, column, width, tl.where(target == ignored, 0.0, dx), FULL)


OUTPUTS = ("dx_ptr",)

DTYPES = FLOATS

SHAPES = (
    {"rows": 4096, "cols": 32000},
    {"rows": 2048, "cols": 50257},
    {"rows": 8192, "cols": 4096},
    {"rows": 512, "cols": 128256},
    {"rows": 65536, "cols": 100},
)

IGNORED = -100

DEFAULT = Config({"ROWS": 1, "BLOCK": 1024}, num_warps=4)
"""Eight elements a thread."""


def space() -> Space:
    """Build the space: tiles and warps."""
    axes = {
        "ROWS": (1, 2, 4, 8, 16),
        "BLOCK": (128, 256, 512, 1024, 2048, 4096),
        "num_warps": (1, 2, 4, 8),
    }
    return (
        Space(axes, default=DEFAULT)
        .where(
            "a thread has 4 to 32 elements",
            lambda ROWS, BLOCK, num_warps: 4 <= ROWS * BLOCK // (num_warps * 32) <= 32,
        )
        .where(
            "a tile is under twice as wide as a row",
            lambda BLOCK, cols: BLOCK <= 1024 or 2 * cols > BLOCK,
        )
    )


def _grid(values: Mapping[str, Any]) -> tuple[int, int]:
    across = triton.cdiv(values["cols"], values["BLOCK"])
    return triton.cdiv(values["rows"], values["ROWS"]), across


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `cross_entropy_backward` by name."""
    rows, cols = shape["rows"], shape["cols"]
    logits = torch.randn(rows, cols, device=device).to(torch_dtype(dtype))
    target = torch.randint(0, cols, (rows,), device=device)
    lse, grad = torch.logsumexp(logits.float(), 1), torch.randn(rows, device=device)
    return {"grad": grad, "logits": logits, "target": target, "lse": lse}


def baseline(
    grad: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    lse: torch.Tensor,
    ignore_index: int = IGNORED,
) -> torch.Tensor:
    """Compute the kernel's result in PyTorch, for targets that are classes or ignored."""
    counted = (target != ignore_index)[:, None]
    hit = torch.arange(logits.shape[1], device=logits.device)[None, :] == target[:, None]
    share = torch.exp(logits - lse[:, None]) - hit.to(lse.dtype)
    return torch.where(counted, share * grad[:, None], 0.0).to(logits.dtype)


@replay_calls
def cross_entropy_backward(
    grad: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    lse: torch.Tensor,
    ignore_index: int = IGNORED,
) -> torch.Tensor:
    """Compute the gradient of the logits of `cross_entropy` by the tuned kernel.

    Args:
        grad: (rows,), the gradient of each row's loss, in fp32, on a GPU.
        logits: (rows, cols), of a dtype of DTYPES.
        target: (rows,), class numbers in int64.
        lse: (rows,), the logarithm of each row's sum of exponentials, in fp32.
        ignore_index: rows of this target have gradient 0.

    Returns:
        A tensor of the shape and dtype of the logits.

    Raises:
        ValueError: shapes or devices differ, or a dtype is not one of those.
    """
    what = "cross_entropy_backward"
    check_tensors(what, {"logits": logits}, DTYPES)
    check_tensors(what, {"lse": lse, "grad": grad}, ("fp32",))
    check_tensors(what, {"target": target}, ("i64",))
    for name, tensor in {"grad": grad, "target": target, "lse": lse}.items():
        check_shape(what, name, tensor, logits.shape[:1])
    if not logits.numel():
        return torch.empty_like(logits)
    saved = (as_rows(logits), target.contiguous(), lse.contiguous())
    arguments = _arguments(grad, *saved, ignored=ignore_index)
    _tuned[_grid](**arguments)
    return arguments["dx_ptr"]


def _arguments(
    grad: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    lse: torch.Tensor,
    ignored: int = IGNORED,
) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the result."""
    dx = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    tensors = {"grad_ptr": grad, "x_ptr": logits, "target_ptr": target, "lse_ptr": lse}
    sizes = {"stride_grad": grad.stride(0), **row_sizes(x=logits, dx=dx)}
    return {**tensors, "dx_ptr": dx, **sizes, "ignored": ignored}


problem = problems(kernel, "cross_entropy_backward", inputs, _arguments, _grid)
reference = exact(baseline, "grad_ptr", "x_ptr", "target_ptr", "lse_ptr", "ignored")
_tuned = asm_autotune(space=space, key=ROW_KEY)(kernel)
