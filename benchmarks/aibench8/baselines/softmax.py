"""Softmax of a row a program, in a block of the next power of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.problem import Problem

CONFIGS = (Config({}),)

OUTPUTS = ("y_ptr",)


@triton.jit
def kernel(x_ptr, y_ptr, stride_x, stride_y, cols, BLOCK: tl.constexpr):
    """Compute one row a program."""
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + col, mask=col < cols, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * stride_y + col, e / tl.sum(e, 0), mask=col < cols)


def problem(inputs: Mapping[str, Any]) -> Problem:
    """Make one launch."""
    x = inputs["x"]
    y = torch.empty_like(x)
    strides = {"stride_x": x.stride(0), "stride_y": y.stride(0)}
    sizes = {"cols": x.shape[1], "BLOCK": triton.next_power_of_2(x.shape[1])}
    return Problem(
        kernel, {"x_ptr": x, "y_ptr": y, **strides, **sizes}, (x.shape[0],), name="untuned softmax"
    )
