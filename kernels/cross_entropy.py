"""Cross entropy of logits and class numbers, forward: log(sum(exp(x))) - x[target].

A row that fits a block is read once; so is a longer one, whose maximum and sum are kept
as it is read. The logarithm of the sum stays for backward.

Shapes: logits are (rows, cols), target is (rows,).
Dtypes: logits fp32, fp16 or bf16, computed in fp32; target int64. The loss is fp32.
Layout: rows of logits at any stride; they are copied where their last axis has gaps.
Targets: one outside 0 to cols - 1 makes its row's loss NaN: to raise, the host would have to wait.
Source: Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867.
Backward: `cross_entropy_backward`.
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
from asmtune.kernels._common import (
    FLOATS,
    as_rows,
    check_rows,
    check_shape,
    check_tensors,
    load_columns,
    problems,
    vouched,
)
from asmtune.kernels._rows import ROW_KEY, online_sum, row_axes, row_grid, whole_row_sizes
from asmtune.kernels.cross_entropy_backward import IGNORED, cross_entropy_backward
from asmtune.kernels.cross_entropy_backward import SHAPES as SHAPES
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.replay_calls import replay_calls


@triton.jit(do_not_specialize=["rows", "cols", "stride_x", "ignored"])
def kernel(
    x_ptr,
    target_ptr,
    loss_ptr,
    lse_ptr,
    rows,
    cols,
    stride_x,
    ignored,
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
    start_of = row * vouched(stride_x, MULTIPLE)
    target = tl.load(target_ptr + row)
    known = (target >= 0) & (target < width)
    chosen = tl.load(x_ptr + start_of + target, mask=known, other=float("nan")).to(tl.float32)
    if BLOCK >= WIDTH:
        WHOLE: tl.constexpr = MULTIPLE % WIDTH == 0
        column = tl.arange(0, WIDTH)[None, :]
        x = load_columns(x_ptr + start_of[:, None], column, width, float("-inf"), WHOLE)
        top = tl.max(x, 1)
        total = tl.sum(tl.exp(x - top[:, None]), 1)
    else:
        top, total = online_sum(x_ptr + start_of[:, None], width, MULTIPLE, ROWS, BLOCK, STAGES)
    lse = top + tl.log(total)
    tl.store(loss_ptr + row, tl.where(target == ignored, 0.0, lse - chosen))
    tl.store(lse_ptr + row, lse)


@triton.jit(do_not_specialize=["rows", "ignored"])
def total(
    loss_ptr,
    target_ptr,
    result_ptr,
    count_ptr,
    rows,
    ignored,
    MEAN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute all losses' sum or mean, and the number of rows that count, in one program."""
    losses = tl.zeros((BLOCK,), tl.float32)
    counted = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        losses += tl.load(loss_ptr + row, mask=row < rows, other=0.0)
        target = tl.load(target_ptr + row, mask=row < rows, other=ignored)
        counted += tl.where(target == ignored, 0.0, 1.0)
    result, count = tl.sum(losses, 0), tl.sum(counted, 0)
    tl.store(result_ptr, result / count if MEAN else result)
    tl.store(count_ptr, count)


OUTPUTS = ("loss_ptr", "lse_ptr")

DTYPES = FLOATS

REDUCTIONS = ("mean", "sum", "none")

DEFAULT = Config({"ROWS": 1, "BLOCK": 4096, "STAGES": 1}, num_warps=8)
"""16 elements a thread."""

space = partial(row_axes, DEFAULT)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `cross_entropy` by name."""
    rows, cols = shape["rows"], shape["cols"]
    logits = torch.randn(rows, cols, device=device).to(torch_dtype(dtype))
    return {"logits": logits, "target": torch.randint(0, cols, (rows,), device=device)}


def baseline(
    logits: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int = IGNORED,
    reduction: str = "mean",
) -> torch.Tensor:
    """Compute the kernel's result in PyTorch, for targets that are classes or ignored."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    counted = target != ignore_index
    chosen = torch.log_softmax(wide, 1).gather(1, torch.where(counted, target, 0)[:, None])[:, 0]
    losses = torch.where(counted, -chosen, 0.0)
    if reduction == "none":
        return losses
    return losses.sum() / counted.sum() if reduction == "mean" else losses.sum()


def reference(arguments: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Compute losses and logarithms of the sums in float64 from a problem's arguments."""
    x, target = arguments["x_ptr"].double(), arguments["target_ptr"]
    return baseline(x, target, arguments["ignored"], "none"), torch.logsumexp(x, 1)


def _backward(
    grad: Any, logits: Any, target: Any, lse: Any, count: Any, ignored: int, reduction: str
) -> tuple[torch.Tensor]:
    grad = grad / count if reduction == "mean" else grad
    return (cross_entropy_backward(grad.expand(target.shape), logits, target, lse, ignored),)


@replay_calls(backward=_backward)
def cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int = IGNORED,
    reduction: str = "mean",
) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """Compute cross entropy by the tuned kernel, with its gradient.

    Args:
        logits: (rows, cols), of a dtype of DTYPES, on a GPU.
        target: (rows,), class numbers in int64.
        ignore_index: rows of this target have loss and gradient 0, and do not count in a mean.
        reduction: "mean", "sum" or "none".

    Returns:
        One number in fp32, or one a row with "none".

    Raises:
        ValueError: shapes or devices differ, rows are empty, or a dtype or the reduction is
            not one of those.
    """
    what = "cross_entropy"
    if reduction not in REDUCTIONS:
        raise ValueError(f"{what}: reduction is {reduction!r}; it must be one of {REDUCTIONS}")
    check_tensors(what, {"logits": logits}, DTYPES)
    check_tensors(what, {"target": target}, ("i64",))
    if logits.ndim != 2 or logits.device != target.device:
        raise ValueError(
            f"{what}: logits are {tuple(logits.shape)} on {logits.device}, and target is on "
            f"{target.device}; logits must be (rows, cols) on the same device"
        )
    check_rows(what, logits)
    check_shape(what, "target", target, logits.shape[:1])
    x, target = as_rows(logits), target.contiguous()
    arguments = _arguments(x, target, ignore_index)
    losses, lse = arguments["loss_ptr"], arguments["lse_ptr"]
    if logits.numel():
        _tuned[row_grid](**arguments)
    if reduction == "none":
        return losses, (logits, target, lse, None, ignore_index, reduction)
    result, count = (torch.empty((), dtype=torch.float32, device=x.device) for _ in range(2))
    _total[(1,)](*(losses, target, result, count, len(x), ignore_index), MEAN=reduction == "mean")
    return result, (logits, target, lse, count, ignore_index, reduction)


def _arguments(
    logits: torch.Tensor, target: torch.Tensor, ignored: int = IGNORED
) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the results."""
    size, device = len(logits), logits.device
    loss, lse = (torch.empty(size, dtype=torch.float32, device=device) for _ in range(2))
    tensors = {"x_ptr": logits, "target_ptr": target, "loss_ptr": loss, "lse_ptr": lse}
    return {**tensors, "ignored": ignored, **whole_row_sizes(x=logits)}


problem = problems(kernel, "cross_entropy", inputs, _arguments, row_grid)
_tuned = asm_autotune(space=space, key=ROW_KEY)(kernel)
# Eight losses a thread, so that a few thousand rows are read at once.
_total = asm_autotune(configs=[Config({"BLOCK": 8192}, num_warps=32)])(total)
