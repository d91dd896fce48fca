"""Device functions of the attention kernels: loads, masks, dropout, and the walk over keys.

`masks` is (keys, queries, window, ahead, padding_ptr, mask_ptr, stride_mask): query m sees keys
from m - window + 1 on where WINDOWED, and up to m + ahead where CAUSAL, or to m if that is None.
MASK is 1 for a boolean mask of scores, and 2 for one that is added to them.

A block of queries meets its keys in up to three loops: those that a window cuts off on the
left, those that need no mask at all, and those on the causal diagonal or at the end.
Sums and maxima are for powers of 2, so that one fused multiply-add scales a score.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def aligned(stride, ptr):
    """Return a stride that the compiler sees to be a multiple of 16 bytes, as callers vouch."""
    PER: tl.constexpr = 128 // ptr.dtype.element_ty.primitive_bitwidth
    return stride // PER * PER


@triton.jit
def at_head(ptr, batch, head, stride_batch, stride_head):
    """Return the address at which a head's rows begin."""
    return ptr + batch * aligned(stride_batch, ptr) + head * aligned(stride_head, ptr)


@triton.jit
def row_stride(stride, ptr, D: tl.constexpr, DENSE: tl.constexpr):
    """Return the stride between rows: D where callers vouch that rows follow each other.

    A constant stride leaves one address a thread, where others take one for each of its loads.
    """
    step = aligned(stride, ptr)
    if DENSE:
        step = tl.full([], D, tl.int32)
    return step


@triton.constexpr_function
def columns_of(D):
    """Return the extent of a tile's rows: the power of 2, 16 or more, that holds heads of D."""
    return max(16, triton.next_power_of_2(D))


@triton.jit
def load_rows(ptr, first, stride, end, D: tl.constexpr, BLOCK: tl.constexpr, FULL: tl.constexpr):
    """Load BLOCK rows of D columns, and as many as tiles have; the others are 0.

    So are rows from `end` on, which a FULL block does not have.
    """
    row = tl.arange(0, BLOCK)[:, None]
    at = ptr + tl.cast(first, tl.int64) * stride + row * stride
    column = tl.arange(0, columns_of(D))[None, :]
    at += column
    if columns_of(D) == D:
        rows = tl.load(at) if FULL else tl.load(at, mask=first + row < end, other=0.0)
    elif FULL:
        rows = tl.load(at, mask=column < D, other=0.0)
    else:
        rows = tl.load(at, mask=(first + row < end) & (column < D), other=0.0)
    return rows


@triton.jit
def store_rows(
    ptr, first, stride, end, rows, D: tl.constexpr, BLOCK: tl.constexpr, FULL: tl.constexpr
):
    """Store BLOCK rows, rounded to the tensor's dtype, where `load_rows` would load them."""
    row = tl.arange(0, BLOCK)[:, None]
    at = ptr + tl.cast(first, tl.int64) * stride + row * stride
    column = tl.arange(0, columns_of(D))[None, :]
    at += column
    rows = rows.to(ptr.dtype.element_ty)
    if columns_of(D) != D:
        tl.store(at, rows, mask=(first + row < end) & (column < D))
    elif FULL:
        tl.store(at, rows)
    else:
        tl.store(at, rows, mask=first + row < end)


@triton.jit
def place(blocks, heads, CAUSAL: tl.constexpr):
    """Return a program's block and head; the longest blocks of eight causal heads go first.

    All heads at once would balance a little better, but their keys would not stay in L2.
    """
    pid = tl.program_id(0)
    TOGETHER: tl.constexpr = 8 if CAUSAL else 1
    first = pid // (blocks * TOGETHER) * TOGETHER
    height = tl.minimum(heads - first, TOGETHER)
    rest = pid - first * blocks
    return rest // height, first + rest % height


@triton.jit
def key_limit(length_ptr, batch, N, PADDING: tl.constexpr):
    """Return how many keys a batch has: N, or its length."""
    limit = N
    if PADDING == 1:
        length = tl.load(length_ptr + batch).to(tl.int64)
        limit = tl.maximum(tl.minimum(length, N), 0).to(tl.int32)
    return limit


@triton.jit
def mask_values(m, n, masks):
    """Load the mask of scores at queries m and keys n, of which one lies along each axis."""
    limit, M, _, _, _, mask_ptr, stride_mask = masks
    # Queries past the last take its mask: no mask of the load is needed along them.
    row = tl.minimum(m, M - 1).to(tl.int64) * stride_mask
    return tl.load(mask_ptr + row + n, mask=n < limit, other=0)


@triton.jit
def added(m, n, masks):
    """Return what an additive mask adds to scores for powers of 2."""
    return mask_values(m, n, masks).to(tl.float32) * 1.4426950408889634


@triton.jit
def seen(
    m, n, masks, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, PADDING: tl.constexpr,
    MASK: tl.constexpr,
):  # fmt: skip
    """Return whether queries m see keys n, of which one lies along each axis."""
    limit, _, window, ahead, padding_ptr, _, _ = masks
    inside = n < limit
    visible = inside
    if CAUSAL:
        visible = visible & (n <= (m if ahead is None else m + ahead))
    if WINDOWED:
        visible = visible & (n > m - window)
    if PADDING == 2:
        visible = visible & (tl.load(padding_ptr + n, mask=inside, other=0) != 0)
    if MASK == 1:
        visible = visible & (mask_values(m, n, masks) != 0)
    return visible


@triton.jit
def key_spans(
    first, masks, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, PADDING: tl.constexpr,
    MASK: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Return where BLOCK_M queries' keys begin, need no mask, need one again, and end."""
    limit, _, window, ahead, _, _, _ = masks
    begin = 0
    free = 0
    end = limit
    whole = limit
    if CAUSAL:
        last = first if ahead is None else first + ahead
        end = tl.minimum(end, last + BLOCK_M)
        whole = tl.minimum(whole, last + 1)
    if WINDOWED:
        begin = tl.maximum(first - window + 1, 0) // BLOCK_N * BLOCK_N
        free = tl.cdiv(tl.maximum(first + BLOCK_M - window, 0), BLOCK_N) * BLOCK_N
    if PADDING == 2 or MASK != 0:
        whole = 0
    free = tl.maximum(tl.minimum(free, end), begin)
    return begin, free, tl.maximum(whole // BLOCK_N * BLOCK_N, free), end


@triton.jit
def query_spans(
    first, masks, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, MASK: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Return where BLOCK_N keys' queries begin, need no mask, need one again, and end."""
    _, M, window, ahead, _, _, _ = masks
    begin = 0
    free = 0
    end = M
    whole = M
    if CAUSAL:
        least = first if ahead is None else tl.maximum(first - ahead, 0)
        most = first + BLOCK_N - 1
        most = most if ahead is None else tl.maximum(most - ahead, 0)
        begin = least // BLOCK_M * BLOCK_M
        free = tl.cdiv(most, BLOCK_M) * BLOCK_M
    if WINDOWED:
        end = tl.minimum(end, first + BLOCK_N - 1 + window)
        whole = tl.minimum(whole, first + window)
    if MASK != 0:
        whole = 0
    free = tl.maximum(tl.minimum(free, end), begin)
    return begin, free, tl.maximum(whole // BLOCK_M * BLOCK_M, free), end


@triton.jit
def reaches(words, threshold):
    """Return whether words, in 31 bits each, are at least the threshold."""
    return (words.to(tl.uint32, bitcast=True) >> 1).to(tl.int32) >= threshold


@triton.jit
def kept(draw, m, first, BLOCK: tl.constexpr):
    """Return which scores dropout keeps: queries m, BLOCK keys from `first`, a multiple of 4, on.

    Score n of row r, counted over batches, heads and queries, takes word n % 4 of Philox
    4x32-10 at counter r * quads + n // 4: one counter serves four neighbours.
    """
    seed, threshold, row, quads, _ = draw
    counter = (row + m).to(tl.int64)[:, None] * quads + first // 4
    w0, w1, w2, w3 = tl.randint4x(seed, counter + tl.arange(0, BLOCK // 4)[None, :])
    even = tl.interleave(reaches(w0, threshold), reaches(w2, threshold))
    return tl.interleave(even, tl.interleave(reaches(w1, threshold), reaches(w3, threshold)))


@triton.jit
def softmax_step(s, top, total, scale):
    """Return powers of 2 below the highest score so far, that one, its factor, and the sums."""
    higher = tl.maximum(top, tl.max(s, 1) * scale)
    p = tl.exp2(s * scale - higher[:, None])
    shrink = tl.exp2(top - higher)
    return p, higher, shrink, total * shrink + tl.sum(p, 1)


@triton.jit
def walk(
    q, keys, values, state, m, span, masks, draw, scale, D: tl.constexpr, BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, PADDING: tl.constexpr, MASK: tl.constexpr,
    DROPOUT: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Attend to the keys of a span; `state` is the sums of values, the maxima and the sums."""
    k_ptr, stride_k = keys
    v_ptr, stride_v = values
    acc, top, total = state
    limit = masks[0]
    for start in tl.range(span[0], span[1], BLOCK):
        k = load_rows(k_ptr, start, stride_k, limit, D, BLOCK, not MASKED)
        s = tl.dot(q, k.T)
        n = start + tl.arange(0, BLOCK)
        if MASK == 2:
            s = s * scale + added(m[:, None], n[None, :], masks)
        if MASKED:
            visible = seen(m[:, None], n[None, :], masks, CAUSAL, WINDOWED, PADDING, MASK)
            s = tl.where(visible, s, float("-inf"))
        p, top, shrink, total = softmax_step(s, top, total, 1.0 if MASK == 2 else scale)
        if DROPOUT:
            p = tl.where(kept(draw, m, start, BLOCK), p, 0.0)
        v = load_rows(v_ptr, start, stride_v, limit, D, BLOCK, not MASKED)
        acc = tl.dot(p.to(q.dtype), v, acc * shrink[:, None])
    return acc, top, total


@triton.jit
def walk_spans(
    q, keys, values, m, spans, masks, draw, scale, BLOCK_M: tl.constexpr, D: tl.constexpr,
    BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, PADDING: tl.constexpr,
    MASK: tl.constexpr, DROPOUT: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Attend to all keys of the spans that `key_spans` returns; return what `walk` does."""
    begin, free, whole, end = spans
    # The least float, not -inf: the difference of two would be NaN.
    top = tl.full([BLOCK_M], -3.4028234663852886e38, tl.float32)
    acc = tl.zeros([BLOCK_M, columns_of(D)], tl.float32)
    state = (acc, top, tl.zeros([BLOCK_M], tl.float32))
    if WINDOWED:
        state = walk(
            *(q, keys, values, state, m, (begin, free), masks, draw, scale, D, BLOCK_N),
            *(CAUSAL, WINDOWED, PADDING, MASK, DROPOUT, True),
        )
    if PADDING != 2 and MASK == 0:
        state = walk(
            *(q, keys, values, state, m, (free, whole), masks, draw, scale, D, BLOCK_N),
            *(CAUSAL, WINDOWED, PADDING, MASK, DROPOUT, False),
        )
    if MASKED:
        state = walk(
            *(q, keys, values, state, m, (whole, end), masks, draw, scale, D, BLOCK_N),
            *(CAUSAL, WINDOWED, PADDING, MASK, DROPOUT, True),
        )
    return state
