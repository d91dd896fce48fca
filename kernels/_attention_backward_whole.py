"""Device functions of attention's backward in one launch: items of programs, and keys' gradients.

They are for heads without windows, padding, masks and dropout.
"""

from __future__ import annotations

import triton
import triton.language as tl

from asmtune.kernels._attention import load_rows


@triton.jit
def place_item(item, blocks, heads, CAUSAL: tl.constexpr):
    """Gives an item's block and head as `place` does, which numbers programs."""
    TOGETHER: tl.constexpr = 8 if CAUSAL else 1
    first = item // (blocks * TOGETHER) * TOGETHER
    height = tl.minimum(heads - first, TOGETHER)
    rest = item - first * blocks
    return rest // height, first + rest % height


@triton.jit
def add_queries_anew(
    k, v, queries, grads, results, lse_ptr, dk, dv, n, span, M, scale, D: tl.constexpr,
    STEP: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Adds to dk and dv what the queries of a span give; `scale` is for powers of 2."""
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
def key_part(
    k, v, queries, grads, results, lse_ptr, n, spans, M, scale, D: tl.constexpr,
    HELD: tl.constexpr, STEP: tl.constexpr, CAUSAL: tl.constexpr, ENDED: tl.constexpr,
):  # fmt: skip
    """The sums of what the queries of the spans that `query_spans` gives contribute."""
    begin, free, whole, end = spans
    dk = tl.zeros([HELD, D], tl.float32)
    dv = tl.zeros([HELD, D], tl.float32)
    if CAUSAL:
        dk, dv = add_queries_anew(
            *(k, v, queries, grads, results, lse_ptr, dk, dv, n, (begin, free), M, scale),
            *(D, STEP, CAUSAL, True),
        )
    dk, dv = add_queries_anew(
        *(k, v, queries, grads, results, lse_ptr, dk, dv, n, (free, whole), M, scale),
        *(D, STEP, CAUSAL, False),
    )
    if ENDED:
        dk, dv = add_queries_anew(
            *(k, v, queries, grads, results, lse_ptr, dk, dv, n, (whole, end), M, scale),
            *(D, STEP, CAUSAL, True),
        )
    return dk, dv
