"""Triton kernels that the tests of `asmtune.ir.asm` compile, each for one trait of its assembly."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gemm(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    ACC: tl.constexpr,
):
    """Multiply row-major matrices through pointers: cp.async and mma or wgmma in one loop."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    a = a_ptr + rows[:, None] * K + ks[None, :]
    b = b_ptr + ks[:, None] * N + cols[None, :]
    acc = tl.zeros((BM, BN), ACC)
    for _ in range(tl.cdiv(K, BK)):
        acc = tl.dot(tl.load(a), tl.load(b), acc, out_dtype=ACC)
        a += BK
        b += BK * N
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def tma_gemm(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    WS: tl.constexpr,
):
    """Multiply through tensor descriptors made on the device: cp.async.bulk.tensor, mbarrier."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BK, BN])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, tl.cdiv(K, BK), warp_specialize=WS):
        acc = tl.dot(a.load([m, k * BK]), b.load([k * BK, n]), acc)
    c.store([m, n], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def row_softmax(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    """Compute softmax of one row held in registers; spills where BLOCK outgrows them."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    y = e / tl.sum(e, 0)
    tl.store(y_ptr + row * stride + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n)


@triton.jit
def nested(x_ptr, y_ptr, n, m, BLOCK: tl.constexpr):
    """Loop inside a loop, with bounds that are known only at launch."""
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        part = tl.zeros((BLOCK,), tl.float32)
        for j in range(m):
            part += tl.load(x_ptr + (i * m + j) * BLOCK + cols)
        total += tl.sqrt(part)
    tl.store(y_ptr + cols, total)


@triton.jit
def lock_add(x_ptr, y_ptr, lock_ptr, BLOCK: tl.constexpr):
    """Take a spin lock with a while loop, then add atomically."""
    cols = tl.arange(0, BLOCK)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.atomic_add(y_ptr + cols, tl.load(x_ptr + cols))
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def _twice(x):
    return tl.exp(x) + tl.exp(x * 0.5)


@triton.jit
def fused_math(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Compute special functions and conversions under a mask."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n).to(tl.float32)
    y = _twice(x) / (1.0 + tl.sqrt(tl.abs(x))) + tl.sin(x) + tl.log(tl.abs(x) + 1.0)
    tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n)
