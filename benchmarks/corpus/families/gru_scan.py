"""A gated recurrence: time step by time step, the state carried in registers; a small grid."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def kernel(
    gate_ptr,
    x_ptr,
    y_ptr,
    time,
    width,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Process BLOCK channels of a sequence a program: h += z (tanh x - h), z = sigmoid of gates."""
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.program_id(1).to(tl.int64) * time * width + c
    state = tl.zeros([BLOCK], tl.float32)
    for _ in tl.range(0, time, num_stages=STAGES, loop_unroll_factor=UNROLL):
        z = tl.sigmoid(tl.load(gate_ptr + at, mask=c < width, other=0.0).to(tl.float32))
        x = tl.load(x_ptr + at, mask=c < width, other=0.0).to(tl.float32)
        state += z * (2.0 * tl.sigmoid(2.0 * x) - 1.0 - state)
        tl.store(y_ptr + at, state.to(y_ptr.dtype.element_ty), mask=c < width)
        at += width


DTYPES = ("bf16",)

SHAPES = (
    {"batch": 16, "time": 512, "width": 2048},
    {"batch": 1, "time": 1024, "width": 1024},
    {"batch": 64, "time": 256, "width": 4096},
    {"batch": 5, "time": 333, "width": 777},
)


def space() -> Space:
    """Build the space: block, stages and unrolling of the loop, and warps."""
    axes = {
        "BLOCK": (32, 64, 128, 256, 512, 1024),
        "STAGES": (1, 2, 3, 4),
        "UNROLL": (1, 2, 4),
        "num_warps": (1, 2, 4, 8),
    }
    return held(axes, 1, 8, "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random gates and inputs."""
    batch, time, width = shape["batch"], shape["time"], shape["width"]
    gate, x = (normal((batch, time, width), dtype, device) for _ in range(2))
    arguments = {"gate_ptr": gate, "x_ptr": x, "y_ptr": torch.empty_like(x)}
    return launch(kernel, shape, arguments, (width, "BLOCK"), batch)
