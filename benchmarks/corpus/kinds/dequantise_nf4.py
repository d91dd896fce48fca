"""4-bit codes to 16 bits by a table of 16 values, and a scale for each 64."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from benchmarks.corpus.host import held, launch, normal


@triton.jit
def kernel(code_ptr, table_ptr, scale_ptr, out_ptr, total, BLOCK: tl.constexpr):
    """Process BLOCK bytes, two codes each, a program."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    code = tl.load(code_ptr + at, mask=at < total, other=0).to(tl.int32)
    scale = tl.load(scale_ptr + at // 32, mask=at < total, other=0.0)
    high = tl.load(table_ptr + (code >> 4)) * scale
    low = tl.load(table_ptr + (code & 15)) * scale
    both = tl.interleave(high, low).to(out_ptr.dtype.element_ty)
    to = tl.program_id(0).to(tl.int64) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    tl.store(out_ptr + to, both, mask=to < 2 * total)


DTYPES = ("fp16",)

SHAPES = ({"total": 33554432}, {"total": 1000000})


def space() -> Space:
    """Build the space: bytes, warps, and a limit on registers that is often no limit."""
    axes = {
        "BLOCK": (64, 128, 256, 512, 1024, 2048, 4096, 8192),
        "num_warps": (1, 2, 4, 8),
        "maxnreg": (None, 32),
    }
    return held(axes, 1, 64, "BLOCK")


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random codes."""
    total = shape["total"]
    arguments = {
        "code_ptr": torch.randint(0, 256, (total,), device=device, dtype=torch.uint8),
        "table_ptr": torch.linspace(-1, 1, 16, device=device) ** 3,
        "scale_ptr": normal((triton.cdiv(total, 32),), "fp32", device),
        "out_ptr": normal((2 * total,), dtype, device),
    }
    return launch(kernel, shape, arguments, (total, "BLOCK"))
