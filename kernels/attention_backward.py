"""Attention backward: the gradients of queries, keys and values, by two launches.

A launch makes the gradient of queries, and the sums of dy * y (`_attention_backward_q.py`). In
this module's kernel each program keeps a block of keys and walks over the queries of one head that
see them: four products a block of queries, of transposed scores. What of a block of keys does not
exist is computed as if it did, and left out at the end: no mask of keys is needed on the way.
Heads that share keys each leave gradients in fp32, which PyTorch adds: a loop over these
heads in the kernel took 60 to 100 registers more, and it spilled. Nothing is added in memory, so
that results repeat bit by bit. One launch of seven products a pair of blocks was 2% to 20% slower
on an H100 and an H200 than the two.

On Hopper a Gluon kernel takes heads of 64 and 128 without windows, masks and dropout, from 1024
tokens on. It adds in an order that changes, and was faster than the two launches and than cuDNN
wherever it was timed, except with heads of 64, no causal mask and 1024 tokens. Shorter heads were
not timed.

Shapes: dy, q and y are (batch, heads, queries, dim), k and v (batch, key heads, keys, dim),
lse is (batch, heads, queries): logarithms to base 2, as `attention` keeps them.
Dtypes: fp16, bf16, fp32 (multiplied as tf32), the same for all but lse, which is fp32.
Layout: any strides; what does not lie in rows at multiples of 16 bytes is copied.
Source: Dao, FlashAttention-2, arXiv:2307.08691, with its loops apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from torch.compiler import is_dynamo_compiling

from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.kernels import _attention_host as host
from asmtune.kernels import _attention_spec as exact
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
from asmtune.kernels._attention_backward_q import key_gradients, query_gradient
from asmtune.kernels._attention_host import Attending, Window
from asmtune.kernels._attention_spec import of_keys
from asmtune.kernels._common import doubled, is_expanded, is_hopper, problems
from asmtune.runtime.decorator import asm_autotune
from asmtune.runtime.replay_calls import replay_calls

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

_SHORT = 1024
"""Tokens below which the Gluon kernel is not taken, as the module says."""

DEFAULT = Config({"BLOCK_M": 32, "BLOCK_N": 64}, num_warps=4, num_stages=3)
"""Fastest by geometric mean of all that ran at three shapes on an H200: 0.90 of the best."""


def space() -> Space:
    """Build the space: blocks, warps and stages."""
    return of_keys(DEFAULT)


def _grid(values: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(values["N"], values["BLOCK_N"]) * values["heads"],)


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `attention_backward` by name."""
    given, how = exact.backward_inputs(shape, dtype, device)
    del given["delta"]
    return {**given, "causal": how.causal}


def baseline(
    dy: Any, q: Any, k: Any, v: Any, y: Any, lse: Any, *options: Any, **named: Any
) -> tuple[torch.Tensor, ...]:
    """Compute all three gradients in PyTorch; options are those of `attention_backward`."""
    how = Attending(*options, **named).checked("attention_backward", q, k)
    dq, dk, dv = exact.differentiate(dy, q, k, v, lse, (dy * y).sum(-1), how)
    return dq, host.summed(dk, k), host.summed(dv, v)


def reference(arguments: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Compute the gradients of each head of queries in float64 from a problem's arguments."""
    names = ("dy_ptr", "q_ptr", "k_ptr", "v_ptr", "lse_ptr", "delta_ptr")
    how = Attending(causal=arguments["CAUSAL"], scale=arguments["scale"])
    return exact.differentiate(*doubled(arguments, *names), how)[1:]


def _arguments(
    given: Mapping[str, torch.Tensor], delta: torch.Tensor, how: Attending
) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the results."""
    results = {f"d{name}": host.room_for_heads(given["q"], given[name]) for name in "kv"}
    own = {name: tensor for name, tensor in given.items() if name != "y"}
    return host.backward_arguments({**own, "delta": delta}, results, how)


def _laid(heads: Mapping[str, torch.Tensor], lse: torch.Tensor) -> dict[str, torch.Tensor]:
    return {**{name: host.laid(x) for name, x in heads.items()}, "lse": lse.contiguous()}


@replay_calls
def by_two_launches(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    y: torch.Tensor,
    lse: torch.Tensor,
    causal: bool = False,
    window: Window = None,
    padding: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    scale: float | None = None,
    keys: bool = True,
) -> tuple[torch.Tensor, ...]:
    """Compute the gradients of queries and, if wanted, of keys and values; results repeat."""
    heads = {"dy": dy, "q": q, "k": k, "v": v, "y": y}
    how = Attending(causal, window, padding, mask, dropout, seed, scale)
    how = host.check_backward("attention_backward", heads, {"lse": lse}, how)
    given = _laid(heads, lse)
    dq, delta = query_gradient(given, how)
    if not keys:
        return (dq,)
    if q.numel() * k.numel() == 0:
        return dq, torch.zeros_like(k), torch.zeros_like(v)
    arguments = _arguments(given, delta, how)
    _tuned[_grid](**arguments)
    return dq, host.summed(arguments["dk_ptr"], k), host.summed(arguments["dv_ptr"], v)


def attention_backward(
    dy: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    y: torch.Tensor,
    lse: torch.Tensor,
    causal: bool = False,
    window: Window = None,
    padding: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    dropout: float = 0.0,
    seed: int = 0,
    scale: float | None = None,
    gluon: bool = True,
) -> tuple[torch.Tensor, ...]:
    """Compute the gradients of `attention`'s queries, keys and values.

    Args:
        dy: (batch, heads, queries, dim), the gradient of the result, on a GPU.
        q: of the same shape, of a dtype of DTYPES, which all but lse have.
        k: (batch, key heads, keys, dim).
        v: as k.
        y: as q, the result.
        lse: (batch, heads, queries) in fp32, logarithms to base 2 of the sums of powers.
        causal: this and what follows up to the scale are the options of `attention`.
        window: see there.
        padding: see there.
        mask: see there.
        dropout: see there.
        seed: see there.
        scale: see there.
        gluon: on Hopper take the Gluon kernel where it was faster, as the module says.

    Returns:
        The gradients of q, k and v, of their dtype.

    Raises:
        ValueError: shapes, dtypes or devices differ, or an option is out of bounds.
    """
    how = Attending(causal, window, padding, mask, dropout, seed, scale)
    if not (gluon and _fits_hopper(q, k, how)):
        options = causal, window, padding, mask, dropout, seed, scale
        return by_two_launches(dy, q, k, v, y, lse, *options)
    from asmtune.kernels import _hopper_attention_backward

    heads = {"dy": dy, "q": q, "k": k, "v": v, "y": y}
    how = host.check_backward("attention_backward", heads, {"lse": lse}, how)
    assert how.scale is not None
    # The copy engine takes no heads that share memory.
    given = _laid({n: x.contiguous() if is_expanded(x) else x for n, x in heads.items()}, lse)
    return _hopper_attention_backward.gradients(given, causal=how.causal, scale=how.scale)


def _fits_hopper(q: torch.Tensor, k: torch.Tensor, how: Attending) -> bool:
    """Return whether the Gluon kernel for Hopper computes the same, and is faster."""
    if is_dynamo_compiling() or not is_hopper(q.device) or not how.is_plain:
        return False
    fits = q.element_size() == 2 and q.ndim == 4 and q.shape[3] in (64, 128)
    is_even = q.shape[2] == _SHORT and (how.causal or q.shape[3] == 128)
    return fits and (is_even or q.shape[2] > _SHORT) and q.numel() * k.numel() > 0


def _problem_arguments(*, causal: bool, lse: Any, **heads: torch.Tensor) -> dict[str, Any]:
    how = Attending(causal=causal).checked("attention_backward", heads["q"], heads["k"])
    delta = (heads["dy"].float() * heads["y"].float()).sum(-1)
    return _arguments(_laid(heads, lse), delta, how)


problem = problems(kernel, "attention_backward", inputs, _problem_arguments, _grid)
_tuned = asm_autotune(space=space, key=host.KEY)(kernel)
