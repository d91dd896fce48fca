"""The loops of attention's backward kernels: over keys, and over queries."""

from __future__ import annotations

import triton
import triton.language as tl

from asmtune.kernels._attention import added, columns_of, kept, load_rows, seen


@triton.jit
def add_keys(
    q, dy, sums, keys, values, dq, m, span, masks, draw, scale, D: tl.constexpr,
    BLOCK: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, PADDING: tl.constexpr,
    MASK: tl.constexpr, DROPOUT: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add to dq what the keys of a span contribute; `scale` is for powers of 2."""
    k_ptr, stride_k = keys
    v_ptr, stride_v = values
    lse, delta = sums
    limit = masks[0]
    for start in tl.range(span[0], span[1], BLOCK):
        k = load_rows(k_ptr, start, stride_k, limit, D, BLOCK, not MASKED)
        v = load_rows(v_ptr, start, stride_v, limit, D, BLOCK, not MASKED)
        s = tl.dot(q, k.T) * scale
        if MASK == 2:
            n = start + tl.arange(0, BLOCK)
            s += added(m[:, None], n[None, :], masks)
        p = tl.exp2(s - lse[:, None])
        if MASKED:
            n = start + tl.arange(0, BLOCK)
            visible = seen(m[:, None], n[None, :], masks, CAUSAL, WINDOWED, PADDING, MASK)
            p = tl.where(visible, p, 0.0)
        dp = tl.dot(dy, v.T)
        if DROPOUT:
            dp = tl.where(kept(draw, m, start, BLOCK), dp * draw[4], 0.0)
        ds = p * (dp - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    return dq


@triton.jit
def query_gradients(
    q, dy, sums, keys, values, m, spans, masks, draw, scale, BLOCK_M: tl.constexpr,
    D: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    PADDING: tl.constexpr, MASK: tl.constexpr, DROPOUT: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Sum what the keys of the spans that `key_spans` returns contribute to dq."""
    begin, free, whole, end = spans
    dq = tl.zeros([BLOCK_M, columns_of(D)], tl.float32)
    if WINDOWED:
        dq = add_keys(
            *(q, dy, sums, keys, values, dq, m, (begin, free), masks, draw, scale, D, BLOCK_N),
            *(CAUSAL, WINDOWED, PADDING, MASK, DROPOUT, True),
        )
    if PADDING != 2 and MASK == 0:
        dq = add_keys(
            *(q, dy, sums, keys, values, dq, m, (free, whole), masks, draw, scale, D, BLOCK_N),
            *(CAUSAL, WINDOWED, PADDING, MASK, DROPOUT, False),
        )
    if MASKED:
        dq = add_keys(
            *(q, dy, sums, keys, values, dq, m, (whole, end), masks, draw, scale, D, BLOCK_N),
            *(CAUSAL, WINDOWED, PADDING, MASK, DROPOUT, True),
        )
    return dq


@triton.jit
def add_queries(
    k, v, queries, grads, sums, dk, dv, n, span, masks, draw, scale, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    MASK: tl.constexpr, DROPOUT: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add to dk and dv what the queries of a span contribute; `scale` is for powers of 2."""
    q_ptr, stride_q = queries
    dy_ptr, stride_dy = grads
    lse_ptr, delta_ptr = sums
    M = masks[1]
    for start in tl.range(span[0], span[1], BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        q = load_rows(q_ptr, start, stride_q, M, D, BLOCK_M, not MASKED)
        dy = load_rows(dy_ptr, start, stride_dy, M, D, BLOCK_M, not MASKED)
        if MASKED:
            # Nothing comes of rows past the last, whose powers are 0.
            lse = tl.load(lse_ptr + m, mask=m < M, other=float("inf"))
            delta = tl.load(delta_ptr + m, mask=m < M, other=0.0)
        else:
            lse = tl.load(lse_ptr + m)
            delta = tl.load(delta_ptr + m)
        s = tl.dot(k, q.T) * scale
        if MASK == 2:
            s += added(m[None, :], n[:, None], masks)
        p = tl.exp2(s - lse[None, :])
        if MASKED and (CAUSAL or WINDOWED or MASK == 1):
            visible = seen(m[None, :], n[:, None], masks, CAUSAL, WINDOWED, 0, MASK)
            p = tl.where(visible, p, 0.0)
        dp = tl.dot(v, dy.T)
        if DROPOUT:
            keep = kept(draw, m, span[2], BLOCK_N).T
            dv = tl.dot(tl.where(keep, p, 0.0).to(dy.dtype), dy, dv)
            dp = tl.where(keep, dp * draw[4], 0.0)
        else:
            dv = tl.dot(p.to(dy.dtype), dy, dv)
        ds = p * (dp - delta[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk)
    return dk, dv


@triton.jit
def key_gradients(
    k, v, queries, grads, sums, n, spans, first, masks, draw, scale, D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    MASK: tl.constexpr, DROPOUT: tl.constexpr, ENDED: tl.constexpr,
):  # fmt: skip
    """Sum what the queries of the spans that `query_spans` returns contribute to dk and dv."""
    begin, free, whole, end = spans
    dk = tl.zeros([BLOCK_N, columns_of(D)], tl.float32)
    dv = tl.zeros([BLOCK_N, columns_of(D)], tl.float32)
    if CAUSAL:
        dk, dv = add_queries(
            *(k, v, queries, grads, sums, dk, dv, n, (begin, free, first), masks, draw),
            *(scale, D, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED, MASK, DROPOUT, True),
        )
    if MASK == 0:
        dk, dv = add_queries(
            *(k, v, queries, grads, sums, dk, dv, n, (free, whole, first), masks, draw),
            *(scale, D, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED, MASK, DROPOUT, False),
        )
    if ENDED:
        dk, dv = add_queries(
            *(k, v, queries, grads, sums, dk, dv, n, (whole, end, first), masks, draw),
            *(scale, D, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED, MASK, DROPOUT, True),
        )
    return dk, dv
