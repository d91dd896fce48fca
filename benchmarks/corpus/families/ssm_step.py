"""Step of a selective state space model: update of the state, and its output."""

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
    state_ptr,
    x_ptr,
    dt_ptr,
    a_ptr,
    b_ptr,
    c_ptr,
    new_ptr,
    y_ptr,
    width,
    STATE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Process BLOCK channels of one sequence a program: h = exp(dt a) h + dt b x, y = c h."""
    d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    s = tl.arange(0, STATE)
    batch = tl.program_id(1)
    inside = d[:, None] < width
    at = (batch * width + d[:, None]) * STATE + s[None, :]
    h = tl.load(state_ptr + at, mask=inside, other=0.0)
    a = tl.load(a_ptr + d[:, None] * STATE + s[None, :], mask=inside, other=0.0)
    x = tl.load(x_ptr + batch * width + d, mask=d < width, other=0.0).to(tl.float32)
    dt = tl.load(dt_ptr + batch * width + d, mask=d < width, other=0.0).to(tl.float32)
    dt = tl.where(dt > 20.0, dt, tl.log(1.0 + tl.exp(dt)))
    b = tl.load(b_ptr + batch * STATE + s).to(tl.float32)
    c = tl.load(c_ptr + batch * STATE + s).to(tl.float32)
    h = h * tl.exp(dt[:, None] * a) + (dt * x)[:, None] * b[None, :]
    tl.store(new_ptr + at, h, mask=inside)
    y = tl.sum(h * c[None, :], 1)
    tl.store(y_ptr + batch * width + d, y.to(y_ptr.dtype.element_ty), mask=d < width)


DTYPES = ("fp16",)

SHAPES = (
    {"batch": 256, "width": 4096, "state": 16},
    {"batch": 8, "width": 2048, "state": 128},
    {"batch": 77, "width": 1999, "state": 64},
)


def space() -> Space:
    """Build the space: channels, warps and a cap on registers."""
    axes = {
        "BLOCK": (1, 2, 4, 8, 16, 32, 64, 128, 256),
        "num_warps": (1, 2, 4, 8, 16),
        "maxnreg": (None, 32, 64),
    }
    return held(axes, 1, 64, "BLOCK", "state")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random states and inputs."""
    batch, width, state = shape["batch"], shape["width"], shape["state"]
    x, dt = (normal((batch, width), dtype, device) for _ in range(2))
    b, c = (normal((batch, state), dtype, device) for _ in range(2))
    h = torch.randn(batch, width, state, device=device)
    arguments = {"state_ptr": h, "x_ptr": x, "dt_ptr": dt}
    arguments |= {"a_ptr": -torch.rand(width, state, device=device), "b_ptr": b, "c_ptr": c}
    arguments |= {"new_ptr": torch.empty_like(h), "y_ptr": torch.empty_like(x)}
    return launch(kernel, shape, arguments | {"STATE": state}, (width, "BLOCK"), batch)
