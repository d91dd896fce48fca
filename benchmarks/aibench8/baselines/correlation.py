"""Correlation: a shift, a row and 8 columns a program, its channels 64 at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.problem import Problem

CONFIGS = (Config({"BLOCK_H": 1, "BLOCK_W": 8, "BLOCK_IC": 64}),)

OUTPUTS = ("out_ptr",)


@triton.jit
def kernel(
    src0_ptr,
    src1_ptr,
    out_ptr,
    in_channel,
    height,
    width,
    out_shift,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_IC: tl.constexpr,
):
    """Compute BLOCK_H rows and BLOCK_W columns of one shift a program."""
    shift = tl.program_id(2)
    col = tl.program_id(0) * BLOCK_W + tl.arange(0, BLOCK_W)[None, :]
    row = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)[:, None]
    inside = (row < height) & (col < width) & (col >= shift)
    at = row * width + col
    total = tl.zeros((BLOCK_H, BLOCK_W), tl.int32)
    for start in range(0, in_channel, BLOCK_IC):
        channel = (start + tl.arange(0, BLOCK_IC))[:, None, None]
        place = channel * (height * width) + at[None, :, :]
        mask = (channel < in_channel) & inside[None, :, :]
        src0 = tl.load(src0_ptr + place, mask=mask, other=0).to(tl.int32)
        src1 = tl.load(src1_ptr + place - shift, mask=mask, other=0).to(tl.int32)
        total += tl.sum(src0 * src1, 0)
    out = out_ptr + shift * height * width + at
    tl.store(out, (total >> out_shift).to(tl.int8), mask=inside)


def problem(inputs: Mapping[str, Any]) -> Problem:
    """Make one launch; what is not written is 0."""
    src0, src1 = inputs["src0"], inputs["src1"]
    channels, height, width = src0.shape
    shifts = inputs["shifts"]
    out = torch.zeros((shifts, height, width), dtype=torch.int8, device=src0.device)
    tensors = {"src0_ptr": src0, "src1_ptr": src1, "out_ptr": out}
    sizes = {"in_channel": channels, "height": height, "width": width}

    def grid(values: Mapping[str, Any]) -> tuple[int, int, int]:
        across = triton.cdiv(width, values["BLOCK_W"])
        return across, triton.cdiv(height, values["BLOCK_H"]), shifts

    arguments = {**tensors, **sizes, "out_shift": inputs["out_shift"]}
    return Problem(kernel, arguments, grid, name="untuned correlation")
