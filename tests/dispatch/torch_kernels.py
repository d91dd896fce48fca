"""Kernels that PyTorch's compiler traces; a module of their own, since it reads their source."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add two vectors."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, total, mask=inside)


@triton.jit
def add_even(x_ptr, y_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    """Add two vectors, without masks where the blocks cover them."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (at < n) | EVEN
    total = tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, total, mask=inside)
