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


@triton.jit
def add_typed(
    x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, DTYPE: tl.constexpr, PARTS: tl.constexpr
):
    """Add two vectors in a dtype, by blocks of so many parts."""
    tl.static_assert(PARTS[0] * PARTS[1] == BLOCK)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x, y = tl.load(x_ptr + at, mask=inside), tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, x.to(DTYPE) + y.to(DTYPE), mask=inside)


@triton.jit
def copy_tile(tile, out_ptr, n, BLOCK: tl.constexpr):
    """Copy a tile of 16 by 16 by a descriptor."""
    at = tl.arange(0, 16)
    tl.store(out_ptr + at[:, None] * 16 + at[None, :], tile.load([0, 0]))


@triton.jit
def add_scaled(x_ptr, y_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    """Add a multiple of a vector to another one."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + at, mask=at < n) + scale * tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, total, mask=at < n)


@triton.jit
def add_kept(
    x_ptr, y_ptr, out_ptr, n, kept_ptr, BLOCK: tl.constexpr, KEEP: tl.constexpr,
    num_warps: tl.constexpr,
):  # fmt: skip
    """Add two vectors; some configs keep the sums a second time."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, total, mask=at < n)
    if KEEP:
        tl.store(kept_ptr + at, total, mask=at < n)
