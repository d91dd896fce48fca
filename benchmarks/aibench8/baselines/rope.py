"""Rotary embedding: a head of a position a program, 32 columns of its halves at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.problem import Problem

CONFIGS = (Config({"BLOCK": 32}),)

OUTPUTS = ("y_ptr",)


@triton.jit
def kernel(
    x_ptr,
    cos_ptr,
    sin_ptr,
    y_ptr,
    stride_seq,
    stride_batch,
    stride_head,
    stride_angle,
    half,
    BLOCK: tl.constexpr,
):
    """Compute one head of one position and batch entry a program."""
    head, entry, position = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    place = position * stride_seq + entry * stride_batch + head * stride_head
    for start in range(0, half, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < half
        cos = tl.load(cos_ptr + position * stride_angle + col, mask=mask, other=0.0)
        sin = tl.load(sin_ptr + position * stride_angle + col, mask=mask, other=0.0)
        x1 = tl.load(x_ptr + place + col, mask=mask, other=0.0)
        x2 = tl.load(x_ptr + place + half + col, mask=mask, other=0.0)
        tl.store(y_ptr + place + col, x1 * cos - x2 * sin, mask=mask)
        tl.store(y_ptr + place + half + col, x1 * sin + x2 * cos, mask=mask)


def problem(inputs: Mapping[str, Any]) -> Problem:
    """Make one launch."""
    x, cos, sin = inputs["x"], inputs["cos"], inputs["sin"]
    seq, batch, heads, dim = x.shape
    tensors = {"x_ptr": x, "cos_ptr": cos, "sin_ptr": sin, "y_ptr": torch.empty_like(x)}
    names = ("stride_seq", "stride_batch", "stride_head")
    strides = dict(zip(names, x.stride()[:3], strict=True))
    sizes = {**strides, "stride_angle": cos.stride(0), "half": dim // 2}
    return Problem(kernel, {**tensors, **sizes}, (heads, batch, seq), name="untuned rope")
