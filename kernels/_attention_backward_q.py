"""The gradient of attention's queries, and the sums of dy * y that those of keys need as well.

Each program keeps a block of queries and walks over the keys as forward does, but knows
each row's sum: three products a block of keys. Its arguments are those of `attention_backward`.
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
    at_head,
    key_limit,
    key_spans,
    load_rows,
    place,
    row_stride,
    store_rows,
)
from asmtune.kernels._attention_backward import query_gradients
from asmtune.kernels._attention_host import Attending
from asmtune.kernels._attention_space import of_queries
from asmtune.runtime.decorator import asm_autotune

_PLAIN = (
    *("heads", "H", "GROUP", "M", "N", "window", "ahead", "seed", "threshold"),
    *(
        f"stride_{name}{axis}"
        for name in ("q", "k", "v", "dy", "y", "dq", "mask")
        for axis in "bhr"
    ),
)


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
