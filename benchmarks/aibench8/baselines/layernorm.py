"""LayerNorm forward as in Triton's tutorial 05: a row a program, read three times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.kernels import layernorm

CONFIGS = (Config({"BLOCK": 1024}),)

OUTPUTS = ("y_ptr", "mean_ptr", "rstd_ptr")


@triton.jit
def kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, stride, cols, eps, BLOCK: tl.constexpr
):
    """Compute one row a program, BLOCK columns at a time: mean, variance, result."""
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / cols
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + col, mask=col < cols, other=0.0).to(tl.float32)
        off = tl.where(col < cols, x - mean, 0.0)
        square += off * off
    rstd = 1 / tl.sqrt(tl.sum(square, 0) / cols + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < cols
        weight = tl.load(weight_ptr + col, mask=mask)
        bias = tl.load(bias_ptr + col, mask=mask)
        x = tl.load(x_ptr + col, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + col, (x - mean) * rstd * weight + bias, mask=mask)


def problem(inputs: Mapping[str, Any]) -> Problem:
    """Make one launch."""
    x = inputs["x"]
    results = {"y_ptr": torch.empty_like(x)}
    for name in ("mean_ptr", "rstd_ptr"):
        results[name] = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    given = {"x_ptr": x, "weight_ptr": inputs["weight"], "bias_ptr": inputs["bias"]}
    sizes = {"stride": x.stride(0), "cols": x.shape[1], "eps": layernorm.EPS}
    return Problem(kernel, {**given, **results, **sizes}, (x.shape[0],), name="untuned layernorm")


def reference(inputs: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Compute the result, the mean and the reciprocal of the deviation."""
    given = {f"{name}_ptr": inputs[name] for name in ("x", "weight", "bias")}
    return layernorm.reference({**given, "eps": layernorm.EPS})
