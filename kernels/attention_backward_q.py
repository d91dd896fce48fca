"""Attention backward, the gradient of queries, and the sums of dy * y that keys' need as well.

Each program keeps a block of queries and walks over the keys as forward does, but knows
each row's sum: three products a block of keys. The gradients of keys and values are
`attention_backward_kv`'s: one kernel for all would add to dq in an order that changes.

Shapes: dy, q and y are (batch, heads, queries, dim), k and v (batch, key heads, keys, dim),
lse is (batch, heads, queries): logarithms to base 2, as `attention` keeps them.
Dtypes: fp16, bf16, fp32 (multiplied as tf32), the same for all but lse, which is fp32.
Layout: any strides; what does not lie in rows at multiples of 16 bytes is copied.
Errors: ValueError where shapes, dtypes or devices differ.
Source: Dao, FlashAttention-2, arXiv:2307.08691, with its loops apart.
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
from asmtune.kernels import _attention_reference as exact
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
from asmtune.kernels._common import doubled, problems
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


OUTPUTS = ("dq_ptr", "delta_ptr")

DTYPES = host.DTYPES

SHAPES = host.BACKWARD_SHAPES

DEFAULT = Config({"BLOCK_M": 64, "BLOCK_N": 32}, num_warps=4, num_stages=3)
"""Within 6% of the fastest at three shapes on an H200."""


def space() -> Space:
    """Build the space: blocks, warps and stages."""
    return of_queries(DEFAULT, 2)


def _grid(values: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(values["M"], values["BLOCK_M"]) * values["heads"],)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `attention_backward_q` by name."""
    given, how = exact.backward_inputs(shape, dtype, device)
    del given["delta"]
    return {**given, "how": how}


def baseline(
    dy: Any, q: Any, k: Any, v: Any, y: Any, lse: Any, how: Attending
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the kernel's result in PyTorch."""
    how = how.checked("attention_backward_q", q, k)
    delta = (dy * y).sum(-1)
    return exact.differentiate(dy, q, k, v, lse, delta, how)[0], delta


def reference(arguments: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the gradient and the sums in float64 from a problem's arguments."""
    names = ("dy_ptr", "q_ptr", "k_ptr", "v_ptr", "y_ptr", "lse_ptr")
    how = Attending(causal=arguments["CAUSAL"], scale=arguments["scale"])
    return baseline(*doubled(arguments, *names), how)


def attention_backward_q(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    y: torch.Tensor,
    lse: torch.Tensor,
    how: Attending,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the gradient of `attention`'s queries by the tuned kernel.

    The tensors are those of `attention_backward`, `how` is the options of the forward pass.

    Returns:
        The gradient, of q's dtype, and the sums of dy * y over dim in fp32.

    Raises:
        ValueError: shapes, dtypes or devices differ.
    """
    heads = {"dy": dy, "q": q, "k": k, "v": v, "y": y}
    how = host.check_backward("attention_backward_q", heads, {"lse": lse}, how)
    arguments = _arguments(**heads, lse=lse, how=how)
    dq, delta = arguments["dq_ptr"], arguments["delta_ptr"]
    if k.shape[2] == 0:
        dq.zero_()
        delta.zero_()
    elif dq.numel():
        _tuned[_grid](**arguments)
    return dq, delta


def _arguments(*, lse: torch.Tensor, how: Attending, **heads: torch.Tensor) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the results."""
    given = {name: host.laid(tensor) for name, tensor in heads.items()}
    given["lse"] = lse.contiguous()
    q = given["q"]
    results = {"dq": torch.empty_like(q), "delta": torch.empty_like(given["lse"])}
    how = how.checked("attention_backward_q", q, given["k"])
    return host.backward_arguments(given, results, how)


problem = problems(kernel, "attention_backward_q", inputs, _arguments, _grid)
_tuned = asm_autotune(space=space, key=host.KEY)(kernel)
