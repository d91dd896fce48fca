"""Vector addition: the smallest kernel of all, and what memory bandwidth allows.

Shapes: x and y have one shape, any number of axes; so has the result.
Dtypes: fp32, fp16, bf16, the same for both; added in fp32, which rounds to the same.
Layout: any. Tensors of one layout without gaps are added as they lie, others are copied.
Source: Triton's tutorial 01, with masks in the last block alone, so that any length is
loaded 16 bytes at a time.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.keys.buckets import pow2
from asmtune.kernels._common import (
    FLOATS,
    check_shape,
    check_tensors,
    dense,
    draws,
    exact,
    flat_grid,
    flat_space,
    forward_only,
    problems,
)
from asmtune.runtime.decorator import asm_autotune


@triton.jit(do_not_specialize=["n"])
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add BLOCK elements a program."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    at = start + tl.arange(0, BLOCK)
    if start + BLOCK <= n:
        total = tl.load(x_ptr + at).to(tl.float32) + tl.load(y_ptr + at).to(tl.float32)
        tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty))
    else:
        inside = at < n
        total = tl.load(x_ptr + at, mask=inside).to(tl.float32)
        total += tl.load(y_ptr + at, mask=inside).to(tl.float32)
        tl.store(out_ptr + at, total.to(out_ptr.dtype.element_ty), mask=inside)


OUTPUTS = ("out_ptr",)

DTYPES = FLOATS

SHAPES = ({"n": 1 << 26}, {"n": 1 << 20}, {"n": 98_432}, {"n": 50_000_017})

DEFAULT = Config({"BLOCK": 1024}, num_warps=4)
"""Eight elements a thread: two loads of 16 bytes in fp32, one in halves."""

space = partial(flat_space, DEFAULT, (256, 512, 1024, 2048, 4096, 8192), 64)
inputs = draws(x=("n",), y=("n",))


def baseline(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compute the kernel's result in PyTorch."""
    return x + y


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compute x + y by the tuned kernel.

    Args:
        x: tensor of a dtype of DTYPES, on a GPU, of any shape and layout.
        y: tensor of the same shape and dtype.

    Returns:
        A tensor of x's shape and dtype.

    Raises:
        ValueError: shapes, dtypes or devices differ, or a gradient is asked for.
    """
    forward_only("vector_add", x, y)
    check_tensors("vector_add", {"x": x, "y": y}, DTYPES)
    check_shape("vector_add", "y", y, x.shape)
    arguments = _arguments(x, y)
    if x.numel():
        _tuned[flat_grid](**arguments)
    return arguments["out_ptr"]


def _arguments(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the result."""
    out, (x, y) = dense(x, y)
    return {"x_ptr": x, "y_ptr": y, "out_ptr": out, "n": x.numel()}


problem = problems(kernel, "vector_add", inputs, _arguments, flat_grid)
reference = exact(baseline, "x_ptr", "y_ptr")
_tuned = asm_autotune(space=space, key=[pow2("n")])(kernel)
