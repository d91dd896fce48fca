"""Vector addition: the smallest kernel of all, and what memory bandwidth allows.

Shapes: x and y have one shape, any number of axes; so has the result.
Dtypes: fp32, fp16, bf16, the same for both; added in fp32, which rounds to the same.
Layout: any. Tensors of one layout without gaps are added as they lie, others are copied.
Errors: ValueError where shapes, dtypes or devices differ, or a gradient is asked for.
Source: Triton's tutorial 01, with masks in the last block alone, so that any length is
loaded 16 bytes at a time.
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
from asmtune.kernels._common import FLOATS, check_shape, check_tensors, dense, forward_only
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


def space() -> Space:
    """Build the space: elements a program, and warps."""
    axes = {"BLOCK": (256, 512, 1024, 2048, 4096, 8192), "num_warps": (1, 2, 4, 8, 16)}
    return Space(axes, default=DEFAULT).where(
        "a thread has 4 to 64 elements",
        lambda BLOCK, num_warps: 4 <= BLOCK // (num_warps * 32) <= 64,
    )


def _grid(values: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(values["n"], values["BLOCK"]),)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `vector_add` by name."""
    x, y = (torch.randn(shape["n"], device=device).to(torch_dtype(dtype)) for _ in range(2))
    return {"x": x, "y": y}


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch of one sum of random vectors of n elements."""
    given = inputs(shape, dtype, device)
    arguments = _arguments(given["x"], given["y"], torch.empty_like(given["x"]))
    return Problem(kernel, arguments, _grid, shape, "vector_add")


def baseline(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compute the kernel's result in PyTorch."""
    return x + y


def reference(arguments: Mapping[str, Any]) -> torch.Tensor:
    """Compute the sum in float64 from a problem's arguments."""
    return baseline(arguments["x_ptr"].double(), arguments["y_ptr"].double())


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
    out, (x, y) = dense(x, y)
    if out.numel():
        _tuned[_grid](**_arguments(x, y, out))
    return out


def _arguments(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> dict[str, Any]:
    return {"x_ptr": x, "y_ptr": y, "out_ptr": out, "n": x.numel()}


_tuned = asm_autotune(space=space, key=[pow2("n")])(kernel)
