"""Kernels that reach memory by every road, for tests of what a launch does to its arguments."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Read two, write one."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, total, mask=inside)


@triton.jit
def scale_in_place(x_ptr, n, BLOCK: tl.constexpr):
    """Double what is there."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=inside) * 2.0, mask=inside)


@triton.jit
def sum_into(x_ptr, total_ptr, n, BLOCK: tl.constexpr, SPLIT: tl.constexpr):
    """Store a sum, or add parts of it atomically, as a constexpr says."""
    if SPLIT == 1:
        total = 0.0
        for start in range(0, n, BLOCK):
            at = start + tl.arange(0, BLOCK)
            total += tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), 0)
        tl.store(total_ptr, total)
    else:
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.atomic_add(total_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), 0))


@triton.jit
def locked(lock_ptr, x_ptr, BLOCK: tl.constexpr):
    """Add one under a lock."""
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at) + 1.0)
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def carried(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Store through a pointer that a loop carries, and that changes its argument in it."""
    place = x_ptr + tl.arange(0, BLOCK)
    step = 0
    while step < n:
        tl.store(place, 1.0)
        if step == 3:
            place = y_ptr + tl.arange(0, BLOCK)
        else:
            place += BLOCK
        step += 1


@triton.jit
def chosen(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """Store through a tensor of pointers, each of which may be of either argument."""
    at = tl.arange(0, BLOCK)
    tl.store(tl.where(at < n, x_ptr + at, y_ptr + at), tl.load(z_ptr + at))


@triton.jit
def fill_or_pass(first, second, BLOCK: tl.constexpr):
    """Store and give the first back, or return early with the second."""
    if tl.load(second) > 0:
        tl.store(first + tl.arange(0, BLOCK), 1.0)
        return first
    return second


@triton.jit
def in_a_call(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    """Store inside a function with two exits, and through the pointer that it returns."""
    place = fill_or_pass(x_ptr, y_ptr, BLOCK)
    tl.store(place + BLOCK + tl.arange(0, BLOCK), tl.load(z_ptr))


@triton.jit
def described(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr, REDUCE: tl.constexpr):
    """Copy a tile, or add it, through descriptors made on the device."""
    source = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    if REDUCE:
        target.atomic_add([0, 0], source.load([0, 0]))
    else:
        target.store([0, 0], source.load([0, 0]))


@triton.jit
def host_described_pair(pair):
    """Copy a tile through host descriptors in a tuple."""
    pair[1].store([0, 0], pair[0].load([0, 0]))


@triton.jit
def asm(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """Give addresses to inline assembly."""
    at = tl.arange(0, BLOCK)
    x = tl.inline_asm_elementwise(
        "ld.global.b32 $0, [$1];", "=r,l", [x_ptr + at], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.store(y_ptr + at, x)


@triton.jit
def store_by_table(table_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    """Store through an address from a table."""
    at = tl.arange(0, BLOCK)
    place = tl.load(table_ptr + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(place + at, tl.load(x_ptr + at))
    tl.store(out_ptr, 1.0)


@triton.jit
def load_by_table(table_ptr, out_ptr, BLOCK: tl.constexpr):
    """Load through an address from a table."""
    at = tl.arange(0, BLOCK)
    place = tl.load(table_ptr + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + at, tl.load(place + at))


@triton.jit
def store_by_number(address, x_ptr, BLOCK: tl.constexpr):
    """Store through an address that came as a number."""
    at = tl.arange(0, BLOCK)
    tl.store(address.to(tl.pointer_type(tl.float32)) + at, tl.load(x_ptr + at))


@triton.jit
def third_of_tuple(tensors, BLOCK: tl.constexpr):
    """Copy the first of a tuple to the third; what stands between is a number or nothing."""
    at = tl.arange(0, BLOCK)
    tl.store(tensors[2] + at, tl.load(tensors[0] + at))


@triton.jit
def product(a_ptr, b_ptr, c_ptr, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    """Compute one tile of a product of 32-bit floats."""
    at = tl.arange(0, BLOCK)
    tile = at[:, None] * BLOCK + at[None, :]
    made = tl.dot(tl.load(a_ptr + tile), tl.load(b_ptr + tile), input_precision=PRECISION)
    tl.store(c_ptr + tile, made)


@triton.jit
def add_but_the_last(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Add as `add` does, but for an element that is not written."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, sums, mask=at < n - 1)
