"""Attention with FP8 keys and values: softmax(q (k scale_k)^T scale) (v scale_v), forward.

Keys and values are read as bytes, half of what 16 bits take, and converted in registers to q's
dtype, which has all values of both formats; products are of 16 bits, sums in fp32. Scales that
all keys share stand outside of the loop over keys: those of keys in the queries (which are
rounded once more where channels have their own) and the scores' factor, those of values in the
result. Scales of groups of keys multiply scores and weights. Keys may be split over programs,
the last of which merges their parts in one order: decoding has few queries and many keys. There
the heads that share keys are one block of queries, and read them once.

Shapes: q is (batch, heads, queries, dim), k and v (batch, key heads, keys, dim); dim is a multiple
of 16 up to 256; the key heads divide the heads, and each serves neighbours. Scales are one number,
or of 4 axes: (batch, key heads, groups of keys, 1) or (batch, key heads, 1, dim), batch and
key heads being theirs or 1. Groups are of 128 keys, the last short, or divide the keys evenly.
Dtypes: q fp16 or bf16; k and v e4m3 or e5m2, each its own; scales fp32, above 0 and finite.
Accuracy: against float64 of the same bytes and scales an error is within 2e-3 of the value plus
2e-3 of the largest one in fp16, 1.6e-2 each in bf16, as of attention.
Layout: any strides; what does not lie in rows at multiples of 16 bytes is copied.
Source: as of attention; splits after Flash-Decoding (Dao et al.,
https://pytorch.org/blog/flash-decoding/); scales in place of values as in FlashAttention-3,
arXiv:2407.08608, 3.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.kernels import _attention_host as host
from asmtune.kernels import _attention_spec as exact
from asmtune.kernels._attention import (
    at_head,
    key_limit,
    key_spans,
    load_rows,
    place,
    row_stride,
    store_rows,
)
from asmtune.kernels._attention_fp8 import (
    LEAST_QUERIES,
    channel_scales,
    launch,
    merged,
    part_of,
    scale_layout,
    scaled_queries,
    walk_spans,
)
from asmtune.kernels._attention_fp8 import dequantised as by_attention
from asmtune.kernels._attention_host import Attending, Window
from asmtune.kernels._attention_spec import of_fp8, room_for_parts
from asmtune.kernels._common import by_name, forward_only, processors, tuners
from asmtune.kernels._fp8 import FORMATS, NAMES, typed
from asmtune.kernels._scaled import check_kinds, extent_of_group
from asmtune.kernels._split import workspace
from asmtune.runtime.replay_calls import replay_calls

_PLAIN = (
    *("heads", "H", "GROUP", "M", "N", "window", "ahead"),
    *(f"stride_{name}{axis}" for name in ("q", "k", "v", "y", "mask") for axis in "bhr"),
    *(f"stride_scale_{name}{axis}" for name in "kv" for axis in "bhrd"),
)


@triton.jit(do_not_specialize=_PLAIN)
def kernel(
    q_ptr, k_ptr, v_ptr, scale_k_ptr, scale_v_ptr, padding_ptr, y_ptr, parts_ptr, count_ptr,
    heads, H, GROUP, M, N, window, scale,
    stride_qb, stride_qh, stride_qr, stride_kb, stride_kh, stride_kr,
    stride_vb, stride_vh, stride_vr, stride_yb, stride_yh, stride_yr,
    stride_scale_kb, stride_scale_kh, stride_scale_kr, stride_scale_kd,
    stride_scale_vb, stride_scale_vh, stride_scale_vr, stride_scale_vd,
    mask_ptr, stride_maskb, stride_maskh, stride_maskr, ahead,
    D: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, PADDING: tl.constexpr,
    MASK: tl.constexpr, MULTIPLE: tl.constexpr, DENSE: tl.constexpr,
    FORMAT_K: tl.constexpr, FORMAT_V: tl.constexpr, GROUP_K: tl.constexpr, GROUP_V: tl.constexpr,
    SMS: tl.constexpr,  # noqa: ARG001 (of the space)
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Attend for BLOCK_M queries of a head over a part of its keys a program; K and V are bytes."""
    MASKED: tl.constexpr = CAUSAL or WINDOWED or PADDING + MASK > 0 or MULTIPLE % BLOCK_N != 0
    EVEN: tl.constexpr = MULTIPLE % BLOCK_M == 0
    formats: tl.constexpr = (FORMAT_K, FORMAT_V)
    groups: tl.constexpr = (GROUP_K, GROUP_V)
    blocks = tl.cdiv(M, BLOCK_M)
    block, head = place(blocks, heads, CAUSAL)
    if CAUSAL:
        block = blocks - 1 - block
    first = block * BLOCK_M
    batch, own = (head // H).to(tl.int64), (head % H).to(tl.int64)
    shared = (head % H // GROUP).to(tl.int64)
    m = first + tl.arange(0, BLOCK_M)
    q_ptr = at_head(q_ptr, batch, own, stride_qb, stride_qh)
    y_ptr = at_head(y_ptr, batch, own, stride_yb, stride_yh)
    k_ptr = typed(at_head(k_ptr, batch, shared, stride_kb, stride_kh), FORMAT_K)
    v_ptr = typed(at_head(v_ptr, batch, shared, stride_vb, stride_vh), FORMAT_V)
    scale_k_ptr += batch * stride_scale_kb + shared * stride_scale_kh
    scale_v_ptr += batch * stride_scale_vb + shared * stride_scale_vh
    scales_k = (scale_k_ptr, stride_scale_kr, stride_scale_kd)
    scales_v = (scale_v_ptr, stride_scale_vr, stride_scale_vd)
    keys = (k_ptr, row_stride(stride_kr, k_ptr, D, DENSE), scales_k)
    values = (v_ptr, row_stride(stride_vr, v_ptr, D, DENSE), scales_v)
    q = load_rows(q_ptr, first, row_stride(stride_qr, q_ptr, D, DENSE), M, D, BLOCK_M, EVEN)
    q, scale = scaled_queries(q, scales_k, scale, GROUP_K, D)
    limit = key_limit(padding_ptr, batch, N, PADDING)
    mask_ptr += batch * stride_maskb + own * stride_maskh
    masks = (limit, M, window, ahead, padding_ptr + batch * N, mask_ptr, stride_maskr)
    spans = key_spans(first, masks, CAUSAL, WINDOWED, PADDING, MASK, BLOCK_M, BLOCK_N)
    if SPLIT > 1:
        spans = part_of(spans, tl.program_id(1), SPLIT, BLOCK_N)
    acc, top, total = walk_spans(
        *(q, keys, values, m, spans, masks, N, scale * 1.4426950408889634, BLOCK_M, D, BLOCK_N),
        *(formats, groups, CAUSAL, WINDOWED, PADDING, MASK, MASKED),
    )
    complete = True
    if SPLIT > 1:
        tile, part = tl.program_id(0), tl.program_id(1)
        acc, total, complete = merged((acc, top, total), parts_ptr, count_ptr, tile, part, SPLIT)
    if complete:
        # A query that sees no key has no sum.
        blind = total == 0.0
        y = tl.where(blind[:, None], 0.0, acc * (1.0 / total)[:, None])
        if GROUP_V == -1:
            y *= channel_scales(scales_v, GROUP_V, D)[None, :]
        elif GROUP_V == 0:
            y *= channel_scales(scales_v, GROUP_V, D)
        store_rows(y_ptr, first, row_stride(stride_yr, y_ptr, D, DENSE), M, y, D, BLOCK_M, EVEN)


OUTPUTS = ("y_ptr",)

DTYPES = ("fp16", "bf16")
"""Dtypes of q."""

_KINDS = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def _shape(B: int, H: int, KV: int, M: int, N: int, D: int, causal: int, group: int) -> Any:
    names = ("B", "H", "KV", "M", "N", "D", "causal", "group", "e5m2")
    return dict(zip(names, (B, H, KV, M, N, D, causal, group, 0), strict=True))


SHAPES = (
    _shape(4, 32, 8, 2048, 2048, 128, 1, 0),
    _shape(1, 32, 8, 8192, 8192, 128, 1, 128),
    _shape(4, 16, 16, 2048, 2048, 64, 1, 0),
    _shape(1, 16, 16, 8192, 8192, 64, 1, -1),
    _shape(16, 32, 8, 1, 8192, 128, 0, 0),
    _shape(1, 32, 8, 1, 32768, 128, 0, 128),
    _shape(8, 64, 8, 1, 32768, 128, 0, 1),
    _shape(16, 16, 16, 1, 8192, 64, 0, -1),
)
"""Prefill, then decoding by one query; `group` is as GROUP_K, for keys and values."""

DEFAULT = Config({"BLOCK_M": 64, "BLOCK_N": 64, "SPLIT": 1}, num_warps=4, num_stages=3)
"""Default of `attention`, in one part."""

_FEW = 64
"""Queries below which heads that share keys are one block."""


def space() -> Space:
    """Build the space: blocks, parts of keys, warps and stages."""
    return of_fp8(DEFAULT)


def _grid(values: Mapping[str, Any]) -> tuple[int, int]:
    return (triton.cdiv(values["M"], values["BLOCK_M"]) * values["heads"], values["SPLIT"])


def inputs(shape: Mapping[str, int], dtype: str, device: str) -> dict[str, Any]:
    """Make random arguments of `attention_fp8` by name."""
    heads = exact.random_heads(shape, dtype, device, "q", "k", "v")
    kind = FORMATS["e5m2" if shape["e5m2"] else "e4m3"]
    group, found = shape["group"], {"q": heads["q"]}
    groups = triton.cdiv(shape["N"], group) if group > 0 else 1
    extents = (shape["B"], shape["KV"], groups, shape["D"] if group < 0 else 1)
    for name in "kv":
        found[name] = heads[name].to(kind)
        found[f"scale_{name}"] = torch.rand(extents if group else (), device=device) + 0.5
    return {**found, "causal": bool(shape["causal"])}


def problem(shape: Mapping[str, int], dtype: str, device: str) -> Problem:
    """Make a launch on random heads."""
    given = inputs(shape, dtype, device)
    how = Attending(causal=given.pop("causal")).checked("attention_fp8", given["q"], given["k"])
    arguments = _arguments(**given, how=how)
    arguments["y_ptr"] = arguments["y_ptr"].view(arguments["q_ptr"].shape)
    known_too = {name: arguments[name] for name in ("heads", "M", "SMS")}
    return Problem(kernel, arguments, _grid, {**shape, **known_too}, "attention_fp8")


def by_key(scale: torch.Tensor, keys: int) -> torch.Tensor:
    """Return scales that broadcast to keys or values: of groups of keys, one for each key."""
    if scale.ndim < 4 or scale.shape[2] == 1:
        return scale
    group = extent_of_group("attention_fp8: scales", keys, scale.shape[2])
    return scale.repeat_interleave(group, 2).narrow(2, 0, keys)


def dequantised(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Compute keys or values times their scales in PyTorch, rounded to a dtype."""
    return (x.to(scale.dtype) * by_key(scale, x.shape[2])).to(dtype)


def baseline(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale_k: torch.Tensor,
    scale_v: torch.Tensor,
    **options: Any,
) -> torch.Tensor:
    """Compute the result in PyTorch, of keys and values in q's dtype; options as of `attention`."""
    k, v = dequantised(k, scale_k, q.dtype), dequantised(v, scale_v, q.dtype)
    return exact.attend(q, k, v, Attending(**options).checked("attention_fp8", q, k))[0]


def reference(arguments: Mapping[str, Any]) -> torch.Tensor:
    """Compute the result in float64 from a problem's arguments."""
    q = arguments["q_ptr"].double()
    k, v = (
        dequantised(
            arguments[f"{name}_ptr"].view(FORMATS[arguments[f"FORMAT_{name.upper()}"]]),
            arguments[f"scale_{name}_ptr"].double(),
            torch.float64,
        )
        for name in "kv"
    )
    how = Attending(causal=arguments["CAUSAL"], scale=arguments["scale"])
    return exact.attend_by_heads(q, k, v, how)[0]


@replay_calls(alternatives={"dequantised": by_attention})
def attention_fp8(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale_k: torch.Tensor,
    scale_v: torch.Tensor,
    *,
    causal: bool = False,
    window: Window = None,
    padding: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    scale: float | None = None,
    vendor: bool = True,
) -> torch.Tensor:
    """Compute attention with FP8 keys and values by the tuned kernel, without gradients.

    Results repeat bit by bit; where `attention` is called, as far as its do. `quantise` makes keys
    and values and their scales.

    Args:
        q: (batch, heads, queries, dim), fp16 or bf16, on a GPU.
        k: (batch, key heads, keys, dim), e4m3 or e5m2; the key heads divide the heads.
        v: as k, or of the other format.
        scale_k: fp32: one number, or (batch or 1, key heads or 1, groups or 1, dim or 1): a
            scale for each group of keys or for each channel, not both. Keys are k * scale_k.
            Groups are of 128 keys where that gives so many, else they divide the keys evenly.
        scale_v: the same for values.
        causal: as of `attention`: query m sees keys up to m. For queries at the end of the keys
            give window=(None, keys - queries) instead.
        window: as of `attention`.
        padding: as of `attention`: lengths (batch,), or a mask (batch, keys).
        mask: as of `attention`.
        scale: factor of the scores, above 0; 1 / sqrt(dim) if None.
        vendor: for 64 queries or more call `attention`, with its vendor's functions, on keys and
            values of q's dtype where tuning has found it faster. In fp16 keys and values times
            their scales must lie within fp16 then: leave it out where they do not.

    Returns:
        A tensor of q's shape and dtype. A query that sees no key gives 0.

    Raises:
        ValueError: shapes, dtypes, devices or groups do not fit, an option is out of bounds, or
            a gradient is asked for.
    """
    given = {"q": q, "k": k, "v": v, "scale_k": scale_k, "scale_v": scale_v}
    forward_only("attention_fp8", *given.values())
    fp32 = {torch.float32: "fp32"}
    kinds = {"q": _KINDS, "k": NAMES, "v": NAMES, "scale_k": fp32, "scale_v": fp32}
    check_kinds("attention_fp8", given, kinds)
    host.check_extents("attention_fp8", q, k, v, range(16, host.MOST_DIM + 1, 16))
    how = Attending(causal, window, padding, mask, scale=scale).checked("attention_fp8", q, k)
    arguments = _arguments(**given, how=how)
    y: torch.Tensor = arguments["y_ptr"]
    if k.shape[2] == 0:
        y.zero_()
    elif y.numel():
        tuner = _tuned if vendor and q.shape[2] >= LEAST_QUERIES else _alone
        tuner[_grid](**arguments)
    return y.view(q.shape)


def _arguments(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale_k: torch.Tensor,
    scale_v: torch.Tensor,
    how: Attending,
) -> dict[str, Any]:
    """Give the launch's arguments by name, with room for the result."""
    numbers = _scales("scale_k", scale_k, k) | _scales("scale_v", scale_v, v)
    formats = {"FORMAT_K": NAMES[k.dtype], "FORMAT_V": NAMES[v.dtype]}
    q, k, v = host.laid(_together(q, k, how)), *(host.laid(x.view(torch.uint8)) for x in (k, v))
    y = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    sizes = host.sizes(q, k, how) | host.strides(q=q, k=k, v=v, y=y)
    for name in ("seed", "threshold", "boost", "DROPOUT"):
        del sizes[name]
    sms = processors(q.device)
    room = room_for_parts(sizes["heads"], *(sizes[name] for name in "MND"), sms)
    parts, counts = workspace(q.device, room)
    tensors = {"q_ptr": q, "k_ptr": k, "v_ptr": v, "y_ptr": y}
    tensors |= {"parts_ptr": parts, "count_ptr": counts}
    masks = host.mask_arguments(how, k, y)
    return {**tensors, **numbers, **formats, **masks, **sizes, "SMS": sms}


def _together(q: torch.Tensor, k: torch.Tensor, how: Attending) -> torch.Tensor:
    """View the few queries of heads that share keys as those of one head, where all see alike."""
    batches, heads, M, D = q.shape
    alike = not how.causal and how.window is None and how.mask is None
    if heads == k.shape[1] or M >= _FEW or not alike:
        return q
    return q.reshape(batches, k.shape[1], heads // k.shape[1] * M, D)


def _scales(name: str, scale: torch.Tensor, x: torch.Tensor) -> dict[str, Any]:
    """Check scales, and give them, their strides and groups by kernel parameter."""
    scale = scale.reshape(1, 1, 1, 1) if scale.numel() == 1 else scale
    batches, heads, keys, D = x.shape
    one_of = ((1, batches), (1, heads), range(max(keys, 1) + 1), (1, D))
    fits = scale.ndim == 4 and all(n in some for n, some in zip(scale.shape, one_of, strict=True))
    if not fits or (scale.shape[2] > 1 and scale.shape[3] > 1):
        raise ValueError(
            f"attention_fp8: {name} is {tuple(scale.shape)}; it must be one number, or "
            f"({batches}, {heads}, groups of keys, 1) or ({batches}, {heads}, 1, {D}), "
            "each of the first two these or 1"
        )
    group, steps = scale_layout(f"attention_fp8: {name}", scale, keys)
    strides = {f"stride_{name}{axis}": step for axis, step in zip("bhrd", steps, strict=True)}
    return {f"{name}_ptr": scale, **strides, f"GROUP_{name[-1].upper()}": group}


KEY = (
    *(part for part in host.KEY if part != "DROPOUT"),
    *("FORMAT_K", "FORMAT_V", "GROUP_K", "GROUP_V"),
)
_alone, _tuned = tuners(
    kernel, space=space, key=KEY, vendor={"dequantised": by_name(kernel, launch)}
)
