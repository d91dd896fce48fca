"""A recurrence with a matrix as its state, one time step after the other; a small grid."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.dtypes import torch_dtype
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def kernel(
    r_ptr,
    k_ptr,
    v_ptr,
    w_ptr,
    y_ptr,
    time,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Process BLOCK values of one head a program: S = S diag(w) + v k', y = S r."""
    base = tl.program_id(1).to(tl.int64) * time * D
    d, c = tl.arange(0, D), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    state = tl.zeros([BLOCK, D], tl.float32)
    for t in tl.range(0, time, num_stages=STAGES):
        at = base + t * D
        k = tl.load(k_ptr + at + d).to(tl.float32)
        v = tl.load(v_ptr + at + c).to(tl.float32)
        w = tl.load(w_ptr + at + d).to(tl.float32)
        r = tl.load(r_ptr + at + d).to(tl.float32)
        state = state * w[None, :] + v[:, None] * k[None, :]
        y = tl.sum(state * r[None, :], 1)
        tl.store(y_ptr + at + c, y.to(y_ptr.dtype.element_ty))


DTYPES = ("fp32",)

SHAPES = (
    {"heads": 64, "time": 512, "D": 64},
    {"heads": 8, "time": 1000, "D": 64},
    {"heads": 300, "time": 256, "D": 128},
)


def space() -> Space:
    """Build the space: values, stages of the loop and warps."""
    axes = {
        "BLOCK": (4, 8, 16, 32, 64),
        "STAGES": (1, 2, 3, 4),
        "num_warps": (1, 2, 4, 8, 16),
    }
    return held(axes, 1, 64, "BLOCK", "D")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random heads; w lies between 0.8 and 1."""
    heads, time, D = shape["heads"], shape["time"], shape["D"]
    kind = torch_dtype(dtype)
    r, k, v = (normal((heads, time, D), dtype, device) for _ in range(3))
    w = (0.8 + 0.2 * torch.rand(heads, time, D, device=device)).to(kind)
    arguments = {"r_ptr": r, "k_ptr": k, "v_ptr": v, "w_ptr": w, "y_ptr": torch.empty_like(r)}
    return launch(kernel, shape, arguments, (D, "BLOCK"), heads)
