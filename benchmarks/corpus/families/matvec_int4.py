"""Matrix-vector product with 4-bit weights, two a byte, a scale for 128 of K."""

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
    w_ptr,
    scale_ptr,
    x_ptr,
    y_ptr,
    M,
    K,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute ROWS rows a program, BLOCK bytes of each at a time; even columns in the low half."""
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    acc = tl.zeros([ROWS, BLOCK], tl.float32)
    for i in tl.range(0, K // 2, BLOCK, num_stages=STAGES):
        c = i + tl.arange(0, BLOCK)
        inside = (m[:, None] < M) & (c[None, :] < K // 2)
        w = tl.load(w_ptr + m[:, None] * (K // 2) + c[None, :], mask=inside, other=0)
        scale = tl.load(scale_ptr + m[:, None] * (K // 128) + c[None, :] // 64, mask=inside)
        even = tl.load(x_ptr + 2 * c, mask=c < K // 2, other=0.0).to(tl.float32)
        odd = tl.load(x_ptr + 2 * c + 1, mask=c < K // 2, other=0.0).to(tl.float32)
        low = ((w & 15).to(tl.float32) - 8.0) * even[None, :]
        high = ((w >> 4).to(tl.float32) - 8.0) * odd[None, :]
        acc += tl.where(inside, (low + high) * scale.to(tl.float32), 0.0)
    y = tl.sum(acc, 1)
    tl.store(y_ptr + m, y.to(y_ptr.dtype.element_ty), mask=m < M)


DTYPES = ("fp16",)

SHAPES = (
    {"M": 14336, "K": 4096},
    {"M": 1024, "K": 8192},
    {"M": 5001, "K": 1920},
)


def space() -> Space:
    """Build the space: rows, bytes, stages of the loop and warps."""
    axes = {
        "ROWS": (1, 4, 8, 32),
        "BLOCK": (64, 128, 256, 512),
        "STAGES": (1, 3),
        "num_warps": (1, 2, 4, 8),
    }
    return held(axes, 2, 32, "ROWS", "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random weights, scales and vector."""
    M, K = shape["M"], shape["K"]
    x = normal((K,), dtype, device)
    arguments = {
        "w_ptr": torch.randint(0, 256, (M, K // 2), device=device, dtype=torch.uint8),
        "scale_ptr": torch.rand(M, K // 128, device=device).to(x.dtype) * 1e-2,
        "x_ptr": x,
        "y_ptr": x.new_empty(M),
    }
    return launch(kernel, shape, arguments, (M, "ROWS"))
