"""Device functions of attention's backward in one launch: programs of keys, and of queries.

They are for heads without windows, padding, masks and dropout.
"""

from __future__ import annotations

import triton
import triton.language as tl

from asmtune.kernels._attention import (
    at_head,
    columns_of,
    key_spans,
    load_rows,
    query_spans,
    row_stride,
    store_rows,
)
from asmtune.kernels._attention_backward import query_gradients


@triton.jit
def _place(item, blocks, heads, CAUSAL: tl.constexpr):
    """Return an item's block and head as `place` does, which numbers programs."""
    TOGETHER: tl.constexpr = 8 if CAUSAL else 1
    first = item // (blocks * TOGETHER) * TOGETHER
    height = tl.minimum(heads - first, TOGETHER)
    rest = item - first * blocks
    return rest // height, first + rest % height


@triton.jit
def _add_queries(
    k, v, queries, grads, results, lse_ptr, dk, dv, n, span, M, scale, D: tl.constexpr,
    STEP: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add to dk and dv what the queries of a span contribute; `scale` is for powers of 2."""
    for start in tl.range(span[0], span[1], STEP):
        m = start + tl.arange(0, STEP)
        q = load_rows(queries[0], start, queries[1], M, D, STEP, not MASKED)
        dy = load_rows(grads[0], start, grads[1], M, D, STEP, not MASKED)
        y = load_rows(results[0], start, results[1], M, D, STEP, not MASKED)
        if MASKED:
            # Nothing comes of rows past the last, whose powers are 0.
            lse = tl.load(lse_ptr + m, mask=m < M, other=float("inf"))
        else:
            lse = tl.load(lse_ptr + m)
        delta = tl.sum(dy.to(tl.float32) * y.to(tl.float32), 1)
        p = tl.exp2(tl.dot(k, q.T) * scale - lse[None, :])
        if MASKED and CAUSAL:
            p = tl.where(n[:, None] <= m[None, :], p, 0.0)
        dp = tl.dot(v, dy.T)
        dv = tl.dot(p.to(dy.dtype), dy, dv)
        ds = p * (dp - delta[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk)
    return dk, dv


@triton.jit
def _add_head(
    k, v, queries, grads, results, lse_ptr, sums, n, spans, M, scale, D: tl.constexpr,
    STEP: tl.constexpr, CAUSAL: tl.constexpr, ENDED: tl.constexpr,
):  # fmt: skip
    """Add to both sums what the queries of the spans that `query_spans` returns contribute."""
    begin, free, whole, end = spans
    dk, dv = sums
    if CAUSAL:
        dk, dv = _add_queries(
            *(k, v, queries, grads, results, lse_ptr, dk, dv, n, (begin, free), M, scale),
            *(D, STEP, CAUSAL, True),
        )
    dk, dv = _add_queries(
        *(k, v, queries, grads, results, lse_ptr, dk, dv, n, (free, whole), M, scale),
        *(D, STEP, CAUSAL, False),
    )
    if ENDED:
        dk, dv = _add_queries(
            *(k, v, queries, grads, results, lse_ptr, dk, dv, n, (whole, end), M, scale),
            *(D, STEP, CAUSAL, True),
        )
    return dk, dv


@triton.jit
def _head(x, batch, head, D: tl.constexpr, DENSE: tl.constexpr):
    """Return the address at which a head's rows begin, and their stride."""
    ptr, stride_batch, stride_head, stride = x
    return at_head(ptr, batch, head, stride_batch, stride_head), row_stride(stride, ptr, D, DENSE)


@triton.jit
def of_keys(
    item, q, k, v, dy, y, lse_ptr, dk, dv, sizes, scale, D: tl.constexpr, CAUSAL: tl.constexpr,
    GROUP: tl.constexpr, DENSE: tl.constexpr, EVEN: tl.constexpr, ENDED: tl.constexpr,
    HELD: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a block of keys of a key head, summed over the heads that share it.

    `q` and the like are a pointer, and the strides of batches, heads and rows.
    """
    heads, H, M, N = sizes
    block, share = _place(item, tl.cdiv(N, HELD), heads // GROUP, CAUSAL)
    first = block * HELD
    n = first + tl.arange(0, HELD)
    batch, own = (share // (H // GROUP)).to(tl.int64), (share % (H // GROUP)).to(tl.int64)
    k_ptr, step_k = _head(k, batch, own, D, DENSE)
    v_ptr, step_v = _head(v, batch, own, D, DENSE)
    keys = load_rows(k_ptr, first, step_k, N, D, HELD, EVEN)
    values = load_rows(v_ptr, first, step_v, N, D, HELD, EVEN)
    masks = (N, M, 0, None, lse_ptr, lse_ptr, 0)
    spans = query_spans(first, masks, CAUSAL, False, 0, STEP, HELD)
    WIDTH: tl.constexpr = columns_of(D)
    sums = (tl.zeros([HELD, WIDTH], tl.float32), tl.zeros([HELD, WIDTH], tl.float32))
    for place in range(GROUP):
        head = own * GROUP + place
        sums = _add_head(
            *(keys, values, _head(q, batch, head, D, DENSE), _head(dy, batch, head, D, DENSE)),
            *(_head(y, batch, head, D, DENSE), lse_ptr + (batch * H + head) * M, sums, n, spans),
            *(M, scale * 1.4426950408889634, D, STEP, CAUSAL, ENDED),
        )
    dk_ptr, step_dk = _head(dk, batch, own, D, DENSE)
    dv_ptr, step_dv = _head(dv, batch, own, D, DENSE)
    store_rows(dk_ptr, first, step_dk, N, sums[0] * scale, D, HELD, EVEN)
    store_rows(dv_ptr, first, step_dv, N, sums[1], D, HELD, EVEN)


@triton.jit
def of_queries(
    item, q, k, v, dy, y, lse_ptr, dq, sizes, scale, D: tl.constexpr, CAUSAL: tl.constexpr,
    GROUP: tl.constexpr, DENSE: tl.constexpr, EVEN: tl.constexpr, ENDED: tl.constexpr,
    HELD: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a block of queries of a head; arguments as of `of_keys`."""
    heads, H, M, N = sizes
    blocks = tl.cdiv(M, HELD)
    block, head = _place(item, blocks, heads, CAUSAL)
    if CAUSAL:
        block = blocks - 1 - block
    first = block * HELD
    m = first + tl.arange(0, HELD)
    batch, row = (head // H).to(tl.int64), head.to(tl.int64) * M
    own, shared = (head % H).to(tl.int64), (head % H // GROUP).to(tl.int64)
    q_ptr, step_q = _head(q, batch, own, D, DENSE)
    dy_ptr, step_dy = _head(dy, batch, own, D, DENSE)
    y_ptr, step_y = _head(y, batch, own, D, DENSE)
    queries = load_rows(q_ptr, first, step_q, M, D, HELD, EVEN)
    grads = load_rows(dy_ptr, first, step_dy, M, D, HELD, EVEN)
    results = load_rows(y_ptr, first, step_y, M, D, HELD, EVEN)
    delta = tl.sum(grads.to(tl.float32) * results.to(tl.float32), 1)
    lse = tl.load(lse_ptr + row + m, mask=m < M, other=float("inf"))
    masks = (N, M, 0, None, lse_ptr, lse_ptr, 0)
    sums = query_gradients(
        *(queries, grads, (lse, delta), _head(k, batch, shared, D, DENSE)),
        *(_head(v, batch, shared, D, DENSE), m),
        *(key_spans(first, masks, CAUSAL, False, 0, 0, HELD, STEP), masks, (0, 0, row, 0, 1.0)),
        *(scale * 1.4426950408889634, HELD, D, STEP, CAUSAL, False, 0, 0, False, CAUSAL or ENDED),
    )
    dq_ptr, step_dq = _head(dq, batch, own, D, DENSE)
    store_rows(dq_ptr, first, step_dq, M, sums * scale, D, HELD, EVEN)
