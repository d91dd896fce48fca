"""Kernels whose outputs depend on the config, as those of public packages, and some that do not."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def state_backward(
    dout_ptr, out_ptr, scale_ptr, dstates_ptr, partial_ptr, dim, steps,
    stride_step, stride_head, stride_partial_step, stride_partial_head,
    BLOCK: tl.constexpr, HOLE: tl.constexpr,
):  # fmt: skip
    """Walk back over steps; each program stores its part of a sum per step beside the others."""
    pid, head = tl.program_id(0), tl.program_id(1)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    first = head * stride_head + (steps - 1) * stride_step
    partial_ptr += head * stride_partial_head + (steps - 1) * stride_partial_step + pid
    scale_ptr += head * steps + steps - 1
    out_at, dout_at, dstates_at = out_ptr + first, dout_ptr + first, dstates_ptr + first
    state = tl.zeros((BLOCK,), dtype=tl.float32)
    tl.store(dstates_at + at, state, mask=at < dim)
    for step in range(steps - 1):
        scale = tl.exp(tl.load(scale_ptr).to(tl.float32))
        out = tl.load(out_at + at, mask=at < dim, other=0.0).to(tl.float32)
        if HOLE == 0 or step > 0:
            tl.store(partial_ptr, tl.sum(out * state) * scale)
        state = scale * state + tl.load(dout_at + at, mask=at < dim, other=0.0)
        dstates_at -= stride_step
        tl.store(dstates_at + at, state, mask=at < dim)
        dout_at -= stride_step
        out_at -= stride_step
        scale_ptr -= 1
        partial_ptr -= stride_partial_step
    tl.store(partial_ptr, 0.0)


@triton.jit
def strided_partials(
    x_ptr, partial_ptr, rows, width, BLOCK: tl.constexpr, PARTS: tl.constexpr, MEAN: tl.constexpr
):
    """Sum parts of each row; a constexpr is the number of parts, and the stride of the rows."""
    pid, row = tl.program_id(0), tl.program_id(1)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + row * width + at, mask=at < width, other=0.0))
    if MEAN:
        part = part / BLOCK
    tl.store(partial_ptr + row * PARTS + pid, part)


@triton.jit
def maxima(x_ptr, most_ptr, width, BLOCK: tl.constexpr):
    """Store the largest element of each block."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < width, other=0.0)
    tl.store(most_ptr + tl.program_id(0), tl.max(x))


@triton.jit
def split_product(
    a_ptr, b_ptr, parts_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    SPLIT: tl.constexpr,
):  # fmt: skip
    """Multiply matrices in parts of K; each part is a matrix in a buffer."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    steps = tl.program_id(2) * BK + tl.arange(0, BK)
    a_at = a_ptr + (rows % M)[:, None] * K + steps[None, :]
    b_at = b_ptr + steps[:, None] * N + (columns % N)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK * SPLIT)):
        left = K - k * BK * SPLIT
        a = tl.load(a_at, mask=steps[None, :] < left, other=0.0)
        total = tl.dot(a, tl.load(b_at, mask=steps[:, None] < left, other=0.0), total)
        a_at += BK * SPLIT
        b_at += BK * SPLIT * N
    at = tl.program_id(2) * M * N + rows[:, None] * N + columns[None, :]
    tl.store(parts_ptr + at, total, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def strided_rows(x_ptr, sums_ptr, rows, width, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    """Walk over rows in steps of all programs; each program stores the sum of what it read."""
    pid = tl.program_id(0)
    total = 0.0
    at = tl.arange(0, BLOCK)
    for row in range(pid, rows, PROGRAMS):
        total += tl.sum(tl.load(x_ptr + row * width + at, mask=at < width, other=0.0))
    tl.store(sums_ptr + pid, total)


@triton.jit
def scale(x_ptr, out_ptr, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    """Write an ordinary output; its tiles lie STEP apart, which is right where that is BLOCK."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    out_at = tl.program_id(0) * STEP + tl.arange(0, BLOCK)
    tl.store(out_ptr + out_at, tl.load(x_ptr + at, mask=at < n) * 2.0, mask=out_at < n)


@triton.jit
def row_sums(x_ptr, out_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Write an ordinary output of sums: each row is summed whole, whatever the tile."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    total = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, N, BN):
        columns = start + tl.arange(0, BN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
        total += tl.sum(x, axis=1)
    tl.store(out_ptr + rows, total, mask=rows < M)


@triton.jit
def described_partials(x_ptr, dw_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Sum the rows of a program by descriptors, one block of rows a program."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BM, BN])
    out = tl.make_tensor_descriptor(dw_ptr, [tl.num_programs(0), N], [N, 1], [1, BN])
    total = tl.sum(x.load([pid_m * BM, pid_n * BN]), 0)
    out.store([pid_m, pid_n * BN], total[None, :])
