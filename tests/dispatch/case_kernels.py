"""What the cases of Triton's own tests share, with a GPU and without: kernels, and a check."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy_as(x_ptr, out_ptr, n, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    """Copy by way of a dtype."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n).to(DTYPE), mask=at < n)


@triton.jit
def increment(x_ptr, n, BLOCK: tl.constexpr):
    """Add one in place."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)


@triton.jit
def fill_either(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Write ones into `x_ptr`, or into `out_ptr` where there is none."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ones = tl.full([BLOCK], 1.0, tl.float32)
    if x_ptr is not None:
        tl.store(x_ptr + at, ones, mask=at < n)
    else:
        tl.store(out_ptr + at, ones, mask=at < n)


@triton.jit
def staged(x_ptr, n, STAGES: tl.constexpr, BLOCK: tl.constexpr):
    """Copy in place in a pipelined loop."""
    at = tl.arange(0, BLOCK)
    for _ in tl.range(tl.cdiv(n, BLOCK), num_stages=STAGES):
        tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
        at += BLOCK
