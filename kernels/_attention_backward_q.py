"""The gradient of attention's queries, and the sums of dy * y that those of keys need as well.

Each program keeps a block of queries and walks over the keys as forward does, but knows
each row's sum: three products a block of keys. Its arguments are those of `attention_backward`,
whose loop over queries is here as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.kernels import _attention_host as host
from asmtune.kernels._attention import (
    added,
    at_head,
    columns_of,
    kept,
    key_limit,
    key_spans,
    load_rows,
    place,
    row_stride,
    seen,
    store_rows,
)
from asmtune.kernels._attention_host import Attending
from asmtune.kernels._attention_spec import of_queries
from asmtune.runtime.decorator import asm_autotune

_PLAIN = (
    *("heads", "H", "GROUP", "M", "N", "window", "ahead", "seed", "threshold"),
    *(
        f"stride_{name}{axis}"
        for name in ("q", "k", "v", "dy", "y", "dq", "mask")
        for axis in "bhr"
    ),
)


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


@triton.jit(do_not_specialize=_PLAIN)
def kernel(
    dy_ptr, q_ptr, k_ptr, v_ptr, y_ptr, lse_ptr, padding_ptr, dq_ptr, delta_ptr,
    heads, H, GROUP, M, N, window, scale, seed, threshold, boost,
    stride_qb, stride_qh, stride_qr, stride_kb, stride_kh, stride_kr,
    stride_vb, stride_vh, stride_vr, stride_dyb, stride_dyh, stride_dyr,
    stride_yb, stride_yh, stride_yr, stride_dqb, stride_dqh, stride_dqr,
    mask_ptr, stride_maskb, stride_maskh, stride_maskr, ahead,
    D: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, PADDING: tl.constexpr,
    MASK: tl.constexpr, DROPOUT: tl.constexpr, MULTIPLE: tl.constexpr, DENSE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute gradients of BLOCK_M queries of one head a program."""
    MASKED: tl.constexpr = CAUSAL or WINDOWED or PADDING + MASK > 0 or MULTIPLE % BLOCK_N != 0
    EVEN: tl.constexpr = MULTIPLE % BLOCK_M == 0
    blocks = tl.cdiv(M, BLOCK_M)
    block, head = place(blocks, heads, CAUSAL)
    if CAUSAL:
        block = blocks - 1 - block
    first = block * BLOCK_M
    batch, row = (head // H).to(tl.int64), head.to(tl.int64) * M
    own, shared = (head % H).to(tl.int64), (head % H // GROUP).to(tl.int64)
    m = first + tl.arange(0, BLOCK_M)
    q_ptr = at_head(q_ptr, batch, own, stride_qb, stride_qh)
    dy_ptr = at_head(dy_ptr, batch, own, stride_dyb, stride_dyh)
    y_ptr = at_head(y_ptr, batch, own, stride_yb, stride_yh)
    dq_ptr = at_head(dq_ptr, batch, own, stride_dqb, stride_dqh)
    k_ptr = at_head(k_ptr, batch, shared, stride_kb, stride_kh)
    v_ptr = at_head(v_ptr, batch, shared, stride_vb, stride_vh)
    keys = (k_ptr, row_stride(stride_kr, k_ptr, D, DENSE))
    values = (v_ptr, row_stride(stride_vr, v_ptr, D, DENSE))
    q = load_rows(q_ptr, first, row_stride(stride_qr, q_ptr, D, DENSE), M, D, BLOCK_M, EVEN)
    dy = load_rows(dy_ptr, first, row_stride(stride_dyr, dy_ptr, D, DENSE), M, D, BLOCK_M, EVEN)
    y = load_rows(y_ptr, first, row_stride(stride_yr, y_ptr, D, DENSE), M, D, BLOCK_M, EVEN)
    delta = tl.sum(dy.to(tl.float32) * y.to(tl.float32), 1)
    tl.store(delta_ptr + row + m, delta, mask=m < M)
    lse = tl.load(lse_ptr + row + m, mask=m < M, other=float("inf"))
    limit = key_limit(padding_ptr, batch, N, PADDING)
    mask_ptr += batch * stride_maskb + own * stride_maskh
    masks = (limit, M, window, ahead, padding_ptr + batch * N, mask_ptr, stride_maskr)
    draw = (seed, threshold, row, tl.cdiv(N, 4), boost)
    spans = key_spans(first, masks, CAUSAL, WINDOWED, PADDING, MASK, BLOCK_M, BLOCK_N)
    sums, powers = (lse, delta), scale * 1.4426950408889634
    dq = scale * query_gradients(
        *(q, dy, sums, keys, values, m, spans, masks, draw, powers, BLOCK_M, D, BLOCK_N),
        *(CAUSAL, WINDOWED, PADDING, MASK, DROPOUT, MASKED),
    )
    store_rows(dq_ptr, first, row_stride(stride_dqr, dq_ptr, D, DENSE), M, dq, D, BLOCK_M, EVEN)


DEFAULT = Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_warps=4, num_stages=3)
"""Within 6% of the fastest at three shapes on an H200."""


def space() -> Space:
    """Build the space: blocks, warps and stages."""
    return of_queries(DEFAULT, 2)


def grid(values: Mapping[str, Any]) -> tuple[int]:
    """Give the grid: programs of BLOCK_M queries of a head."""
    return (triton.cdiv(values["M"], values["BLOCK_M"]) * values["heads"],)


def query_gradient(
    given: Mapping[str, torch.Tensor], how: Attending
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the gradient of queries, and the sums of dy * y over dim in fp32.

    Args:
        given: dy, q, k, v, y and lse, laid out as the kernel wants them.
        how: the options of the forward pass, checked.
    """
    dq, delta = torch.empty_like(given["q"]), torch.empty_like(given["lse"])
    if given["k"].shape[2] == 0:
        dq.zero_()
        delta.zero_()
    elif dq.numel():
        results = {"dq": dq, "delta": delta}
        _tuned[grid](**host.backward_arguments(given, results, how))
    return dq, delta


_tuned = asm_autotune(space=space, key=host.KEY)(kernel)
