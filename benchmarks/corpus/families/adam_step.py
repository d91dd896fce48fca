"""A step of Adam on fp32 weights with bf16 gradients: four arrays read, four written."""

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
    w_ptr,
    g_ptr,
    m_ptr,
    v_ptr,
    new_m_ptr,
    new_v_ptr,
    half_ptr,
    y_ptr,
    total,
    rate,
    BLOCK: tl.constexpr,
):
    """Process BLOCK weights a program; also a copy in the gradient's dtype."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    w = tl.load(w_ptr + i, mask=inside)
    g = tl.load(g_ptr + i, mask=inside).to(tl.float32)
    m = 0.9 * tl.load(m_ptr + i, mask=inside) + 0.1 * g
    v = 0.95 * tl.load(v_ptr + i, mask=inside) + 0.05 * g * g
    w = w - rate * (m / (tl.sqrt(v) + 1e-8) + 0.01 * w)
    tl.store(new_m_ptr + i, m, mask=inside)
    tl.store(new_v_ptr + i, v, mask=inside)
    tl.store(half_ptr + i, w.to(half_ptr.dtype.element_ty), mask=inside)
    tl.store(y_ptr + i, w, mask=inside)


DTYPES = ("bf16",)

SHAPES = (
    {"total": 16777216},
    {"total": 262144},
    {"total": 5000003},
)


def space() -> Space:
    """Build the space: block, warps and a cap on registers."""
    axes = {
        "BLOCK": (64, 128, 256, 512, 1024, 2048, 4096, 8192),
        "num_warps": (1, 2, 4, 8, 16),
        "maxnreg": (None, 32, 64),
    }
    return held(axes, 1, 32, "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random weights, gradients and moments."""
    total = shape["total"]
    w, m = (torch.randn(total, device=device) for _ in range(2))
    arguments = {
        "w_ptr": w,
        "g_ptr": normal((total,), dtype, device),
        "m_ptr": m,
        "v_ptr": torch.rand(total, device=device),
        "new_m_ptr": torch.empty_like(m),
        "new_v_ptr": torch.empty_like(m),
        "half_ptr": torch.empty(total, device=device, dtype=torch_dtype(dtype)),
        "y_ptr": torch.empty_like(w),
        "rate": 1e-3,
    }
    return launch(kernel, shape, arguments, (total, "BLOCK"))
