"""Attention with FP8 keys and values: scales, the walk over keys and its parts, and wide copies.

`GROUPS` has, for keys and for values, how many keys share a scale: 0 for all of a head, -1 where
each channel has its own. Scales that all keys share stand outside of the walk: those of keys in
the queries and the scores' factor, those of values in the result. Those of groups meet a block's
scores and weights. Weights times scales are kept below 1 by the highest scale so far, as weights
are by the highest score, so that no scale leaves the range of 16 bits.

With many queries `attention`, which has cuDNN and a kernel for Hopper to choose from, may be faster
on keys and values that are made 16 bits wide before (`dequantised`): products of 16 bits are the
same work either way, and this kernel converts each tile for every block of queries that reads it.
Keys and values times their scales are rounded to q's dtype then. In fp16 they must lie within it,
as those do that were fp16 before they were quantised.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.kernels._attention import added, columns_of, load_rows, seen, softmax_step
from asmtune.kernels._fp8 import FORMATS, NAMES, halves, has_fp8, typed
from asmtune.kernels._scaled import extent_of_group, load_scales
from asmtune.kernels.attention import attention
from asmtune.runtime.decorator import asm_autotune


@triton.jit
def channel_scales(scales, GROUP: tl.constexpr, D: tl.constexpr):
    """Load a head's scales that all keys share: one number, or one for each of D channels.

    Columns that a tile has besides get 0.
    """
    ptr, _, stride = scales
    if GROUP != -1:
        found = tl.load(ptr)
    elif columns_of(D) == D:
        found = tl.load(ptr + tl.arange(0, D) * stride)
    else:
        channel = tl.arange(0, columns_of(D))
        found = tl.load(ptr + channel * stride, mask=channel < D, other=0.0)
    return found


@triton.jit
def scaled_queries(q, scales, scale, GROUP: tl.constexpr, D: tl.constexpr):
    """Multiply queries and the scores' factor by those scales of keys that all keys share.

    Queries take the scales of channels by the largest, so that they stay in range.
    """
    if GROUP == -1:
        own = channel_scales(scales, GROUP, D)
        most = tl.max(own, 0)
        q = (q.to(tl.float32) * (own / most)[None, :]).to(q.dtype)
        scale *= most
    elif GROUP == 0:
        scale *= channel_scales(scales, GROUP, D)
    return q, scale


@triton.jit
def group_scales(scales, start, n, N, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """Load the scales of keys n as a row, or as one number where a block lies in one group."""
    ptr, stride, _ = scales
    found = load_scales((ptr, stride, 0), (start, tl.minimum(n, N - 1)), 0, GROUP, BLOCK)
    return found if GROUP % BLOCK == 0 else found[None, :]


@triton.jit
def load_values(ptr, start, stride, end, FORMAT: tl.constexpr, D: tl.constexpr,
                BLOCK: tl.constexpr, FULL: tl.constexpr):  # fmt: skip
    """Load rows of FP8, in fp16 on devices without such a type."""
    rows = load_rows(ptr, start, stride, end, D, BLOCK, FULL)
    return rows if has_fp8() else halves(rows, FORMAT)


@triton.jit
def walk(
    q, keys, values, state, m, span, masks, N, scale, D: tl.constexpr, BLOCK: tl.constexpr,
    FORMATS: tl.constexpr, GROUPS: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    PADDING: tl.constexpr, MASK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Attend to the keys of a span; `state` has sums, maxima, their sums, highest scale."""
    k_ptr, stride_k, scales_k = keys
    v_ptr, stride_v, scales_v = values
    acc, top, total, unit = state
    limit = masks[0]
    for start in tl.range(span[0], span[1], BLOCK):
        n = start + tl.arange(0, BLOCK)
        k = load_values(k_ptr, start, stride_k, limit, FORMATS[0], D, BLOCK, not MASKED)
        s = tl.dot(q, k.to(q.dtype).T)
        if GROUPS[0] > 0:
            s *= group_scales(scales_k, start, n, N, GROUPS[0], BLOCK)
        if MASK == 2:
            s = s * scale + added(m[:, None], n[None, :], masks)
        if MASKED:
            visible = seen(m[:, None], n[None, :], masks, CAUSAL, WINDOWED, PADDING, MASK)
            s = tl.where(visible, s, float("-inf"))
        p, top, shrink, total = softmax_step(s, top, total, 1.0 if MASK == 2 else scale)
        if GROUPS[1] > 0:
            own = group_scales(scales_v, start, n, N, GROUPS[1], BLOCK)
            higher = tl.maximum(unit, own if GROUPS[1] % BLOCK == 0 else tl.max(own))
            p *= own / higher
            shrink *= unit / higher
            unit = higher
        v = load_values(v_ptr, start, stride_v, limit, FORMATS[1], D, BLOCK, not MASKED)
        acc = tl.dot(p.to(q.dtype), v.to(q.dtype), acc * shrink[:, None])
    return acc, top, total, unit


@triton.jit
def walk_spans(
    q, keys, values, m, spans, masks, N, scale, BLOCK_M: tl.constexpr, D: tl.constexpr,
    BLOCK_N: tl.constexpr, FORMATS: tl.constexpr, GROUPS: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, PADDING: tl.constexpr, MASK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Attend to all keys of the spans; return sums, scaled by groups, maxima and their sums."""
    begin, free, whole, end = spans
    # Not -inf, as in `_attention`; the least scale that `quantise` makes.
    top = tl.full([BLOCK_M], -3.4028234663852886e38, tl.float32)
    unit = tl.full([], 1.1754943508222875e-38, tl.float32)
    acc = tl.zeros([BLOCK_M, columns_of(D)], tl.float32)
    state = (acc, top, tl.zeros([BLOCK_M], tl.float32), unit)
    if WINDOWED:
        state = walk(
            *(q, keys, values, state, m, (begin, free), masks, N, scale, D, BLOCK_N),
            *(FORMATS, GROUPS, CAUSAL, WINDOWED, PADDING, MASK, True),
        )
    if PADDING != 2 and MASK == 0:
        state = walk(
            *(q, keys, values, state, m, (free, whole), masks, N, scale, D, BLOCK_N),
            *(FORMATS, GROUPS, CAUSAL, WINDOWED, PADDING, MASK, False),
        )
    if MASKED:
        state = walk(
            *(q, keys, values, state, m, (whole, end), masks, N, scale, D, BLOCK_N),
            *(FORMATS, GROUPS, CAUSAL, WINDOWED, PADDING, MASK, True),
        )
    acc, top, total, unit = state
    return acc * unit if GROUPS[1] > 0 else acc, top, total


@triton.jit
def part_of(spans, part, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the spans of `key_spans` within one of PARTS of its keys, each of whole blocks."""
    begin, free, whole, end = spans
    each = tl.cdiv(tl.cdiv(tl.maximum(end - begin, 0), BLOCK), PARTS) * BLOCK
    first = begin + part * each
    last = tl.minimum(first + each, end)
    free = tl.maximum(tl.minimum(free, last), first)
    return first, free, tl.maximum(tl.minimum(whole, last), first), last


@triton.jit
def merged(state, parts_ptr, count_ptr, tile, part, PARTS: tl.constexpr):
    """Store sums over a part of the keys; the last program to come merges all, always in one order.

    Nobody waits for anybody, as in `_split`.

    Args:
        state: sums of values, maxima of scores, and sums of weights.
        parts_ptr: fp32 memory for all parts of all tiles.
        count_ptr: how many parts of each tile are there; 0 before, and 0 again after.
        tile: which tile.
        part: which part.
        PARTS: of each tile.

    Returns:
        The sums and the sums of weights over all keys, and whether this program has them.
    """
    acc, top, total = state
    BLOCK_M: tl.constexpr = acc.shape[0]
    D: tl.constexpr = acc.shape[1]
    SIZE: tl.constexpr = BLOCK_M * (D + 2)
    m = tl.arange(0, BLOCK_M)
    sums = parts_ptr + tile.to(tl.int64) * (PARTS * SIZE) + m[:, None] * D
    sums += tl.arange(0, D)[None, :]
    tops = parts_ptr + tile.to(tl.int64) * (PARTS * SIZE) + BLOCK_M * D + m
    # Past L1, which may hold what another program's part was before.
    tl.store(sums + part * SIZE, acc, cache_modifier=".cg")
    tl.store(tops + part * SIZE, top, cache_modifier=".cg")
    tl.store(tops + part * SIZE + BLOCK_M, total, cache_modifier=".cg")
    # All threads' parts are written before one thread says so.
    tl.debug_barrier()
    complete = tl.atomic_add(count_ptr + tile, 1, sem="acq_rel", scope="gpu") == PARTS - 1
    if complete:
        acc = tl.zeros([BLOCK_M, D], tl.float32)
        top = tl.full([BLOCK_M], -3.4028234663852886e38, tl.float32)
        total = tl.zeros([BLOCK_M], tl.float32)
        for other in range(PARTS):
            one = tl.load(tops + other * SIZE, cache_modifier=".cg")
            higher = tl.maximum(top, one)
            shrink, share = tl.exp2(top - higher), tl.exp2(one - higher)
            weights = tl.load(tops + other * SIZE + BLOCK_M, cache_modifier=".cg")
            some = tl.load(sums + other * SIZE, cache_modifier=".cg")
            acc = acc * shrink[:, None] + some * share[:, None]
            total = total * shrink + weights * share
            top = higher
        tl.store(count_ptr + tile, 0)
    return acc, total, complete


LEAST_QUERIES = 64
"""Least queries of a head: with fewer, to read keys takes longest, and to widen them longer."""


@triton.jit(do_not_specialize=["heads", "N"])
def kernel(
    x_ptr, scale_ptr, wide_ptr, heads, N, stride_xb, stride_xh, stride_xr, stride_xd,
    stride_scale_b, stride_scale_h, stride_scale_r, stride_scale_d,
    FORMAT: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Multiply BLOCK keys or values of a head by their scales in fp32, and round once."""
    blocks = tl.cdiv(N, BLOCK)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    batch, own = head // heads, head % heads
    n, d = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK), tl.arange(0, columns_of(D))
    inside = (n < N)[:, None]
    if columns_of(D) != D:
        inside = inside & (d < D)[None, :]
    x = typed(x_ptr, FORMAT) + batch * stride_xb + own * stride_xh
    at = n.to(tl.int64)[:, None] * stride_xr + d.to(tl.int64)[None, :] * stride_xd
    values = tl.load(x + at, mask=inside, other=0.0 if has_fp8() else 0)
    values = (values if has_fp8() else halves(values, FORMAT)).to(tl.float32)
    scales = scale_ptr + batch * stride_scale_b + own * stride_scale_h
    if GROUP == -1:
        scale = tl.load(scales + d * stride_scale_d, mask=d < D, other=0.0)[None, :]
    elif GROUP == 0:
        scale = tl.load(scales)
    else:
        scale = tl.load(scales + n // GROUP * stride_scale_r, mask=n < N, other=0.0)[:, None]
    wide = wide_ptr + (head * N + n)[:, None] * D + d[None, :]
    tl.store(wide, (values * scale).to(wide_ptr.dtype.element_ty), mask=inside)


_PROGRAM = 8192
"""Elements of a program: 64 a thread, four loads of 16 bytes."""

_tuned = asm_autotune(configs=[Config({}, num_warps=4, num_stages=1)])(kernel)


def scale_layout(name: str, scale: torch.Tensor, keys: int) -> tuple[int, list[int]]:
    """Give the keys that share a scale, as GROUP_K and GROUP_V have it, and the scales' strides.

    A stride is 0 along an axis that shares scales.

    Raises:
        ValueError: groups do not divide the keys.
    """
    groups = extent_of_group(name, keys, scale.shape[2])
    steps = [
        step if extent > 1 else 0 for extent, step in zip(scale.shape, scale.stride(), strict=True)
    ]
    return -1 if scale.shape[3] > 1 else groups, steps


def widened(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return keys or values times their scales, rounded once, in a dtype of 16 bits."""
    scale = scale.reshape(1, 1, 1, 1) if scale.numel() == 1 else scale
    batch, heads, keys, dim = x.shape
    wide = torch.empty(x.shape, dtype=dtype, device=x.device)
    group, steps = scale_layout("attention_fp8: scales", scale, keys)
    block = _PROGRAM // columns_of(dim)
    sizes = {"FORMAT": NAMES[x.dtype], "GROUP": group, "D": dim, "BLOCK": block}
    programs = batch * heads * triton.cdiv(keys, block)
    tensors = x.view(torch.uint8), scale, wide
    if programs:
        _tuned[(programs,)](*tensors, heads, keys, *x.stride(), *steps, **sizes)
    return wide


def dequantised(
    q: Any,
    k: Any,
    v: Any,
    scale_k: Any,
    scale_v: Any,
    *,
    vendor: bool = True,  # noqa: ARG001
    **options: Any,
) -> torch.Tensor:
    """Compute `attention_fp8` by `attention`, whose options are the same."""
    k, v = widened(k, scale_k, q.dtype), widened(v, scale_v, q.dtype)
    return attention(q, k, v, **options)


def launch(given: Mapping[str, Any]) -> Any:
    """Compute what a launch does from its arguments by name; return what copies the result.

    A race does not time the copy: a call of `attention_fp8` makes none.
    """
    k, v = (given[f"{name}_ptr"].view(FORMATS[given[f"FORMAT_{name.upper()}"]]) for name in "kv")
    right = (given["ahead"] or 0) if given["CAUSAL"] else None
    left = given["window"] - 1 if given["WINDOWED"] else None
    options: dict[str, Any] = {"causal": right == 0, "window": (left, right or None)}
    for name in ("padding", "mask"):
        tensor, kind = given[f"{name}_ptr"], given[name.upper()]
        is_bool = kind == (2 if name == "padding" else 1)
        options[name] = None if not kind else tensor.view(torch.bool) if is_bool else tensor
    scales = given["scale_k_ptr"], given["scale_v_ptr"]
    y = dequantised(given["q_ptr"], k, v, *scales, scale=given["scale"], **options)
    return partial(given["y_ptr"].view(y.shape).copy_, y)
