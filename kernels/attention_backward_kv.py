"""Attention backward, the gradients of keys and values.

Each program keeps a block of keys and walks over the queries of one head that see them:
four products a block of queries, of transposed scores. What of a block of keys does not
exist is computed as if it did, and left out at the end: no mask of keys is needed on the way.
Heads that share keys each leave gradients in fp32, which PyTorch adds: a loop over these
heads in the kernel took 60 to 100 registers more, and it spilled.

Shapes: dy and q are (batch, heads, queries, dim), k and v (batch, key heads, keys, dim),
lse and delta (batch, heads, queries), as `attention` and `attention_backward_q` give them.
Dtypes: fp16, bf16, fp32 (multiplied as tf32), the same for dy, q, k and v; lse and delta fp32.
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
    load_rows,
    place,
    query_spans,
    row_stride,
    seen,
    store_rows,
)
from asmtune.kernels._attention_backward import key_gradients
from asmtune.kernels._attention_host import Attending
from asmtune.kernels._attention_space import of_keys
from asmtune.kernels._common import doubled, problems
from asmtune.runtime.decorator import asm_autotune

_PLAIN = (
    *("heads", "H", "GROUP", "M", "N", "window", "ahead", "seed", "threshold"),
    *(
        f"stride_{name}{axis}"
        for name in ("q", "k", "v", "dy", "dk", "dv", "mask")
        for axis in "bhr"
    ),
)


@triton.jit(do_not_specialize=_PLAIN)
def kernel(
    dy_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr, padding_ptr, dk_ptr, dv_ptr,
    heads, H, GROUP, M, N, window, scale, seed, threshold, boost,
    stride_qb, stride_qh, stride_qr, stride_kb, stride_kh, stride_kr,
    stride_vb, stride_vh, stride_vr, stride_dyb, stride_dyh, stride_dyr,
    stride_dkb, stride_dkh, stride_dkr, stride_dvb, stride_dvh, stride_dvr,
    mask_ptr, stride_maskb, stride_maskh, stride_maskr, ahead,
    D: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, PADDING: tl.constexpr,
    MASK: tl.constexpr, DROPOUT: tl.constexpr, MULTIPLE: tl.constexpr, DENSE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute gradients of BLOCK_N keys for one head of queries a program."""
    ENDED: tl.constexpr = WINDOWED or MASK != 0 or MULTIPLE % BLOCK_M != 0
    EVEN: tl.constexpr = MULTIPLE % BLOCK_N == 0
    block, head = place(tl.cdiv(N, BLOCK_N), heads, CAUSAL)
    first = block * BLOCK_N
    batch, row = (head // H).to(tl.int64), head.to(tl.int64) * M
    own, shared = (head % H).to(tl.int64), (head % H // GROUP).to(tl.int64)
    n = first + tl.arange(0, BLOCK_N)
    q_ptr = at_head(q_ptr, batch, own, stride_qb, stride_qh)
    dy_ptr = at_head(dy_ptr, batch, own, stride_dyb, stride_dyh)
    dk_ptr = at_head(dk_ptr, batch, own, stride_dkb, stride_dkh)
    dv_ptr = at_head(dv_ptr, batch, own, stride_dvb, stride_dvh)
    k_ptr = at_head(k_ptr, batch, shared, stride_kb, stride_kh)
    v_ptr = at_head(v_ptr, batch, shared, stride_vb, stride_vh)
    queries = (q_ptr, row_stride(stride_qr, q_ptr, D, DENSE))
    grads = (dy_ptr, row_stride(stride_dyr, dy_ptr, D, DENSE))
    k = load_rows(k_ptr, first, row_stride(stride_kr, k_ptr, D, DENSE), N, D, BLOCK_N, EVEN)
    v = load_rows(v_ptr, first, row_stride(stride_vr, v_ptr, D, DENSE), N, D, BLOCK_N, EVEN)
    limit = key_limit(padding_ptr, batch, N, PADDING)
    mask_ptr += batch * stride_maskb + own * stride_maskh
    masks = (limit, M, window, ahead, padding_ptr + batch * N, mask_ptr, stride_maskr)
    begin, free, whole, end = query_spans(first, masks, CAUSAL, WINDOWED, MASK, BLOCK_M, BLOCK_N)
    if PADDING == 1:
        there = (first < limit).to(tl.int32)  # no queries for keys that do not exist
        begin, free, whole, end = begin * there, free * there, whole * there, end * there
    sums, powers = (lse_ptr + row, delta_ptr + row), scale * 1.4426950408889634
    draw = (seed, threshold, row, tl.cdiv(N, 4), boost)
    dk, dv = key_gradients(
        *(k, v, queries, grads, sums, n, (begin, free, whole, end), first, masks, draw),
        *(powers, D, BLOCK_M, BLOCK_N, CAUSAL, WINDOWED, MASK, DROPOUT, ENDED),
    )
    dk *= scale
    if DROPOUT:
        dv *= boost
    if PADDING != 0:
        here = seen(0, n, masks, False, False, PADDING, 0)[:, None]
        dk = tl.where(here, dk, 0.0)
        dv = tl.where(here, dv, 0.0)
    store_rows(dk_ptr, first, row_stride(stride_dkr, dk_ptr, D, DENSE), N, dk, D, BLOCK_N, EVEN)
    store_rows(dv_ptr, first, row_stride(stride_dvr, dv_ptr, D, DENSE), N, dv, D, BLOCK_N, EVEN)


OUTPUTS = ("dk_ptr", "dv_ptr")

DTYPES = host.DTYPES

SHAPES = host.BACKWARD_SHAPES

DEFAULT = Config({"BLOCK_M": 32, "BLOCK_N": 64}, num_warps=4, num_stages=3)
"""Fastest by geometric mean of all that ran at three shapes on an H200: 0.90 of the best."""


def space() -> Space:
    """Build the space: blocks, warps and stages."""
    return of_keys(DEFAULT)


def _grid(values: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(values["N"], values["BLOCK_N"]) * values["heads"],)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `attention_backward_kv` by name."""
    given, how = exact.backward_inputs(shape, dtype, device)
    del given["y"]
    return {**given, "how": how}


def baseline(
    dy: Any, q: Any, k: Any, v: Any, lse: Any, delta: Any, how: Attending
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the kernel's result in PyTorch."""
    how = how.checked("attention_backward_kv", q, k)
    dk, dv = exact.differentiate(dy, q, k, v, lse, delta, how)[1:]
    return host.summed(dk, k), host.summed(dv, v)


def reference(arguments: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the gradients of each head of queries in float64 from a problem's arguments."""
    names = ("dy_ptr", "q_ptr", "k_ptr", "v_ptr", "lse_ptr", "delta_ptr")
    how = Attending(causal=arguments["CAUSAL"], scale=arguments["scale"])
    return exact.differentiate(*doubled(arguments, *names), how)[1:]


def attention_backward_kv(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    how: Attending,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the gradients of `attention`'s keys and values by the tuned kernel.

    The tensors are those of `attention_backward`, `how` is the options of the forward pass. `delta`
    is the sums of dy * y over dim, as `attention_backward_q` gives them.

    Returns:
        The gradients of k and v, of their dtype.

    Raises:
        ValueError: shapes, dtypes or devices differ.
    """
    heads, sums = {"dy": dy, "q": q, "k": k, "v": v}, {"lse": lse, "delta": delta}
    how = host.check_backward("attention_backward_kv", heads, sums, how)
    arguments = _arguments(**heads, **sums, how=how)
    dk, dv = arguments["dk_ptr"], arguments["dv_ptr"]
    if q.numel() * k.numel() == 0:
        return torch.zeros_like(k), torch.zeros_like(v)
    _tuned[_grid](**arguments)
    return host.summed(dk, k), host.summed(dv, v)


def _arguments(
    *, lse: torch.Tensor, delta: torch.Tensor, how: Attending, **heads: torch.Tensor
) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the results."""
    given = {name: host.laid(tensor) for name, tensor in heads.items()}
    given |= {"lse": lse.contiguous(), "delta": delta.contiguous()}
    q = given["q"]
    results = {f"d{name}": host.room_for_heads(q, given[name]) for name in "kv"}
    how = how.checked("attention_backward_kv", q, given["k"])
    return host.backward_arguments(given, results, how)


problem = problems(kernel, "attention_backward_kv", inputs, _arguments, _grid)
_tuned = asm_autotune(space=space, key=host.KEY)(kernel)
