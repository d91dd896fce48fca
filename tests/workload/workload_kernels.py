"""Triton kernels that the tests of `asmtune.ir.ttir` lower, each for one trait of its TTIR."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gemm(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Multiply with wrapped offsets, masked loads and tiles in groups of eight rows."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    group = pid // (8 * tiles_n)
    first = group * 8
    size = min(tiles_m - first, 8)
    pid_m = first + (pid % (8 * tiles_n)) % size
    pid_n = (pid % (8 * tiles_n)) // size
    rows = (pid_m * BM + tl.arange(0, BM)) % M
    cols = (pid_n * BN + tl.arange(0, BN)) % N
    ks = tl.arange(0, BK)
    a = a_ptr + rows[:, None] * K + ks[None, :]
    b = b_ptr + ks[:, None] * N + cols[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK)):
        x = tl.load(a, mask=ks[None, :] < K - k * BK, other=0.0)
        y = tl.load(b, mask=ks[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        a += BK
        b += BK * N
    rows = pid_m * BM + tl.arange(0, BM)
    cols = pid_n * BN + tl.arange(0, BN)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty), mask)


@triton.jit
def persistent_gemm(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Walk the tiles of a product from a small grid."""
    tiles_n = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * tiles_n
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        rows = tile // tiles_n * BM + tl.arange(0, BM)
        cols = tile % tiles_n * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            ks = k + tl.arange(0, BK)
            x = tl.load(a_ptr + rows[:, None] * K + ks[None, :])
            y = tl.load(b_ptr + ks[:, None] * N + cols[None, :])
            acc = tl.dot(x, y, acc)
        tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def recurrence(x_ptr, y_ptr, h_ptr, steps, D: tl.constexpr):
    """Carry a state over all time steps of one sequence: a persistent kernel."""
    seq = tl.program_id(0)
    offs = tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    for t in range(steps):
        x = tl.load(x_ptr + (seq * steps + t) * D + offs).to(tl.float32)
        state = state * 0.9 + x[:, None] * x[None, :]
        tl.store(y_ptr + (seq * steps + t) * D + offs, tl.sum(state, 1))
    tl.store(h_ptr + seq * D * D + offs[:, None] * D + offs[None, :], state)


@triton.jit
def attention(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    N,
    scale,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """Compute flash attention forward; causal programs stop at their diagonal."""
    start = tl.program_id(0)
    base = tl.program_id(1).to(tl.int64) * N * D
    offs_m = start * BM + tl.arange(0, BM)
    offs_n = tl.arange(0, BN)
    offs_d = tl.arange(0, D)
    q = tl.load(q_ptr + base + offs_m[:, None] * D + offs_d[None, :])
    m_i = tl.full([BM], -float("inf"), tl.float32)
    l_i = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    hi = tl.minimum((start + 1) * BM, N) if CAUSAL else N
    for n in tl.range(0, hi, BN, num_stages=2):
        cols = n + offs_n
        k = tl.load(k_ptr + base + cols[:, None] * D + offs_d[None, :])
        s = tl.dot(q, k.T) * scale
        if CAUSAL:
            s = tl.where(offs_m[:, None] >= cols[None, :], s, -1.0e30)
        m_new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(v_ptr + base + cols[:, None] * D + offs_d[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m_i = m_new
    out = acc / l_i[:, None]
    tl.store(o_ptr + base + offs_m[:, None] * D + offs_d[None, :], out.to(o_ptr.dtype.element_ty))


@triton.jit
def layernorm(x_ptr, w_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    """Loop over a row twice, one loop after the other."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * cols
    y_ptr += row * cols
    s = tl.zeros([BLOCK], tl.float32)
    q = tl.zeros([BLOCK], tl.float32)
    for i in range(0, cols, BLOCK):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + c, mask=c < cols, other=0.0).to(tl.float32)
        s += x
        q += x * x
    mean = tl.sum(s, 0) / cols
    rstd = tl.rsqrt(tl.sum(q, 0) / cols - mean * mean + eps)
    for i in range(0, cols, BLOCK):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + c, mask=c < cols, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + c, mask=c < cols, other=0.0).to(tl.float32)
        tl.store(y_ptr + c, ((x - mean) * rstd * w).to(y_ptr.dtype.element_ty), mask=c < cols)


@triton.jit
def softmax(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    """Compute one row a program, no loop."""
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + offs, mask=offs < cols, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * cols + offs, e / tl.sum(e, 0), mask=offs < cols)


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
    """Multiply through tensor descriptors made on the device."""
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
def block_pointers(a_ptr, c_ptr, M, K, BM: tl.constexpr, BK: tl.constexpr):
    """Sum columns through block pointers that advance."""
    a = tl.make_block_ptr(a_ptr, (M, K), (K, 1), (tl.program_id(0) * BM, 0), (BM, BK), (1, 0))
    acc = tl.zeros((BM, BK), tl.float32)
    for _ in range(0, K, BK):
        acc += tl.load(a, boundary_check=(0,)).to(tl.float32)
        a = tl.advance(a, (0, BK))
    tl.store(c_ptr + tl.program_id(0) * BM + tl.arange(0, BM), tl.sum(acc, 1))


@triton.jit
def split_k(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Share the inner dimension among programs; add up with atomics."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.program_id(2) * BK + tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK * SPLIT)):
        x = tl.load(a_ptr + rows[:, None] * K + (ks + k * BK * SPLIT)[None, :])
        y = tl.load(b_ptr + (ks + k * BK * SPLIT)[:, None] * N + cols[None, :])
        acc = tl.dot(x, y, acc)
    tl.atomic_add(c_ptr + rows[:, None] * N + cols[None, :], acc)


@triton.jit
def while_scalar(y_ptr, n, BLOCK: tl.constexpr):
    """Halve a scalar state in a while loop until one is left."""
    left = n
    count = 0
    while left > 1:
        left = left // 2
        count += 1
        tl.store(y_ptr + count * BLOCK + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32))
    tl.store(y_ptr + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32) + count)


@triton.jit
def spin_lock(lock_ptr, x_ptr, BLOCK: tl.constexpr):
    """Wait on a lock in memory: a trip count that nobody can know."""
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    offs = tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs) + 1.0)
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def jagged(x_ptr, starts_ptr, y_ptr, BLOCK: tl.constexpr):
    """Loop between bounds loaded from memory."""
    row = tl.program_id(0)
    start = tl.load(starts_ptr + row)
    end = tl.load(starts_ptr + row + 1)
    acc = tl.zeros((BLOCK,), tl.float32)
    for i in range(start, end, BLOCK):
        offs = i + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + offs, mask=offs < end, other=0.0)
    tl.store(y_ptr + row, tl.sum(acc, 0))


@triton.jit
def jagged_stores(y_ptr, n_ptr, BLOCK: tl.constexpr):
    """Store as long as a number in memory says, with a loop of three trips inside."""
    n = tl.load(n_ptr)
    at = tl.program_id(0)
    while at < n:
        acc = tl.zeros((BLOCK,), tl.float32)
        for i in range(3):
            acc += i * at
        tl.store(y_ptr + at * BLOCK + tl.arange(0, BLOCK), acc)
        at += 8


@triton.jit(noinline=True)
def store_twice(ptr, value, BLOCK: tl.constexpr):
    """Store through a pointer that the caller hands over."""
    offs = tl.arange(0, BLOCK)
    tl.store(ptr + offs, value)
    tl.store(ptr + BLOCK + offs, value)


@triton.jit
def noinline_helper(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Store only inside a function that is not inlined, within a loop."""
    for i in range(n):
        x = tl.load(x_ptr + i)
        store_twice(y_ptr + i * 2 * BLOCK, x, BLOCK)


@triton.jit
def bounds_and_pointer(x_ptr, y_ptr, pid, n, SWAP: tl.constexpr):
    """Return several values, pointers among them."""
    low = pid * 4
    high = tl.minimum(low + 4, n)
    if SWAP:
        return y_ptr, x_ptr, low, high
    return x_ptr, y_ptr, low, high


@triton.jit
def tuple_helper(x_ptr, y_ptr, n, SWAP: tl.constexpr, BLOCK: tl.constexpr):
    """Take bounds and pointers from a called function."""
    src, dst, low, high = bounds_and_pointer(x_ptr, y_ptr, tl.program_id(0), n, SWAP)
    for i in range(low, high):
        offs = i * BLOCK + tl.arange(0, BLOCK)
        tl.store(dst + offs, tl.load(src + offs))


@triton.jit
def add_in_place(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Add y to x where it stands: x is both read and written."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(x_ptr + offs, x + tl.load(y_ptr + offs, mask=mask), mask=mask)


@triton.jit
def triangular(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Loop to an inner bound that depends on the outer loop's variable, and on the program."""
    acc = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        for j in range(tl.program_id(0), i + 1):
            acc += tl.load(x_ptr + (i * n + j) * BLOCK + tl.arange(0, BLOCK))
    tl.store(y_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), acc)


@triton.jit
def scaled_dot(
    a_ptr, sa_ptr, b_ptr, sb_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    """Multiply fp4 (two in a byte) by fp8, with scales."""
    m = tl.arange(0, M)
    n = tl.arange(0, N)
    a = tl.load(a_ptr + m[:, None] * (K // 2) + tl.arange(0, K // 2)[None, :])
    b = tl.load(b_ptr + tl.arange(0, K)[:, None] * N + n[None, :])
    sa = tl.load(sa_ptr + m[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    sb = tl.load(sb_ptr + n[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    c = tl.dot_scaled(a, sa, "e2m1", b, sb, "e4m3")
    tl.store(c_ptr + m[:, None] * N + n[None, :], c)


@triton.jit
def scalar_loop(x_ptr, y_ptr, n):
    """Load and store single elements."""
    acc = 0.0
    for i in range(n):
        acc += tl.load(x_ptr + i)
    tl.store(y_ptr, acc)


@triton.jit
def combine(a, b):
    """Add two values."""
    return a + b


@triton.jit
def combine_pair(a, i, b, j):
    """Keep the larger value and its index."""
    keep = a > b
    return tl.where(keep, a, b), tl.where(keep, i, j)


@triton.jit
def scans(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    """Run operations with regions: cumsum, a scan and reductions of one and two values."""
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.cumsum(x, 0) + tl.associative_scan(x, 0, combine)
    tl.store(y_ptr + offs, y)
    best, where = tl.reduce((x, offs), 0, combine_pair)
    tl.store(z_ptr, best + where + tl.sum(x, 0) + tl.argmax(x, 0))
    tl.store(z_ptr + 1 + offs, tl.sort(x))


@triton.jit
def inline_asm(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Run inline assembly with braces and quotes, of one and of two results."""
    for i in range(n):
        offs = i * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs)
        y = tl.inline_asm_elementwise(
            "{ .reg .b32 t; shf.l.wrap.b32 t, $1, $1, 3; mov.b32 $0, t; }",
            "=r,r",
            [x],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
        a, b = tl.inline_asm_elementwise(
            "mov.b32 $0, $2; mov.b32 $1, $2;",
            "=r,=r,r",
            [y],
            dtype=(tl.int32, tl.int32),
            is_pure=False,
            pack=1,
        )
        tl.store(y_ptr + offs, a + b)


@triton.jit
def narrow_types(x_ptr, m_ptr, y_ptr, BLOCK: tl.constexpr):
    """Read fp8, with booleans in memory, and write fp8."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.load(m_ptr + offs)
    x = tl.load(x_ptr + offs, mask=keep, other=0.0).to(tl.float32)
    tl.store(y_ptr + offs, tl.where(keep, x * 2.0, 0.0).to(tl.float8e5))


@triton.jit
def three_axes(y_ptr, n, BLOCK: tl.constexpr):
    """Loop by trips that depend on all three program ids."""
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    flat = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    acc = tl.zeros((BLOCK,), tl.float32)
    for _ in range(x + 2 * y + 3 * z):
        acc += 1.0
    tl.store(y_ptr + flat * BLOCK + tl.arange(0, BLOCK), acc)


@triton.jit
def early_return(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Return at once in programs beyond the end: branches between blocks."""
    pid = tl.program_id(0)
    if pid * BLOCK >= n:
        return
    if pid == 1:
        tl.store(y_ptr, 7.0)
        return
    for i in range(3):
        offs = pid * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + offs, tl.load(x_ptr + offs) + i)


@triton.jit
def branchy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Do one thing in even programs, another in odd ones; a condition chooses pointers."""
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    if pid % 2 == 0:
        trips = n
        ptr = x_ptr
    else:
        trips = 2 * n
        ptr = y_ptr
    for _ in range(trips):
        tl.atomic_add(ptr + offs, 1.0)


@triton.jit
def pointer_chase(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Exchange two pointers on each trip."""
    a = x_ptr
    b = y_ptr
    offs = tl.arange(0, BLOCK)
    for _ in range(n):
        tl.store(b + offs, 1.0)
        t = a
        a = b
        b = t


@triton.jit
def long_loop(y_ptr, n, m):
    """Loop for many trips, with a loop inside whose bound varies."""
    for i in range(n):
        for j in range(i % m):
            tl.store(y_ptr + j, 1.0)


@triton.jit
def quotient(y_ptr, a, b, c):
    """Compute scalar arithmetic in which signs matter."""
    x = a // b + a % b - (c << 2) + (c >> 1)
    y = min(max(x, -100), 100) ^ (a & 7) | 1
    for i in range(y, y + tl.abs(x) % 17):
        tl.store(y_ptr + i, 1.0)


@triton.jit
def expert_gemm(
    a_ptr,
    b_ptr,
    c_ptr,
    token_ptr,
    expert_ptr,
    count_ptr,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Return early or write zeros on values from memory, as mixture-of-experts kernels do."""
    pid = tl.program_id(0)
    if pid * BM >= tl.load(count_ptr):
        return
    rows = tl.load(token_ptr + pid * BM + tl.arange(0, BM))
    cols = tl.arange(0, BN)
    expert = tl.load(expert_ptr + pid)
    if expert == -1:
        tl.store(c_ptr + rows[:, None] * BN + cols[None, :], tl.zeros((BM, BN), tl.float16))
        return
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        x = tl.load(a_ptr + rows[:, None] // 2 * K + ks[None, :])
        y = tl.load(b_ptr + expert * K * BN + ks[:, None] + cols[None, :] * K)
        acc = tl.dot(x, y, acc)
    tl.store(c_ptr + rows[:, None] * BN + cols[None, :], acc.to(tl.float16))


@triton.jit
def descriptor_shape(a, y_ptr, BLOCK: tl.constexpr):
    """Loop over the rows of a host descriptor by its own shape."""
    for i in range(a.shape[0] // 2):
        tl.store(y_ptr + tl.arange(0, BLOCK), a.load([i * 2, 0]).reshape(BLOCK))


@triton.jit
def backwards(y_ptr, n):
    """Count down; and up, unrolled."""
    for i in range(n, 0, -2):
        tl.store(y_ptr + i, 1.0)
    for i in tl.range(0, n, 3, loop_unroll_factor=2, num_stages=4):
        tl.store(y_ptr + i, 2.0)


@triton.jit
def invariant_load(x_ptr, w_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Load the same in each trip of a loop that writes nothing."""
    offs = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        acc += tl.load(x_ptr + i * BLOCK + offs) * tl.load(w_ptr + offs)
    tl.store(y_ptr + offs, acc)


@triton.jit
def transposed(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Read rows, write columns."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    x = tl.load(x_ptr + rows[:, None] * N + cols[None, :])
    tl.store(y_ptr + cols[None, :] * M + rows[:, None], x)


@triton.jit
def uneven_while(y_ptr, n):
    """Go on by steps of one and two in turn."""
    i = 0
    while i < n:
        tl.store(y_ptr + i, 1.0)
        i += 1 + i % 3 // 2


@triton.jit
def exchanged_state(x_ptr, lock_ptr, h_ptr, steps, BLOCK: tl.constexpr):
    """Exchange states through memory: each step waits for all programs' last one."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for step in range(steps):
        while tl.atomic_add(lock_ptr, 0) < step * tl.num_programs(0):
            pass
        whole = tl.sum(tl.load(h_ptr + tl.arange(0, 1024)), 0)
        tl.store(h_ptr + offs, tl.sigmoid(whole * tl.load(x_ptr + step * 1024 + offs)))
        tl.debug_barrier()
        tl.atomic_add(lock_ptr, 1)


@triton.jit
def packed_weights(
    w_ptr,
    s_ptr,
    z_ptr,
    y_ptr,
    K,
    N,
    stride_s,
    BK: tl.constexpr,
    BN: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Unpack numbers of 4 bits, two a byte along K, with a scale a group and zeros eight a word."""
    ks, ns = tl.arange(0, BK), tl.program_id(0) * BN + tl.arange(0, BN)
    for k in range(0, K, BK):
        packed = tl.load(w_ptr + ns[None, :] * (K // 2) + ((k + ks) >> 1)[:, None])
        scale = tl.load(s_ptr + (k + ks)[:, None] // GROUP * stride_s + ns[None, :])
        zero = tl.load(z_ptr + (k + ks)[:, None] // GROUP * (N // 8) + (ns // 4 // 2)[None, :])
        number = ((packed >> (ks % 2 * 4)[:, None]) & 15) - ((zero >> (ns % 8 * 4)[None, :]) & 15)
        tl.store(y_ptr + (k + ks)[:, None] * N + ns[None, :], number * scale)
