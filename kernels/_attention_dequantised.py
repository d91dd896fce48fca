"""Attention with FP8 keys and values by `attention`, after they are made 16 bits wide.

Products of 16 bits are the same work either way. What the kernel of `attention_fp8` saves is bytes;
what it pays is the conversion of each tile by every block of queries that reads it. With many
queries `attention`, which has cuDNN and a kernel for Hopper to choose from, may be faster.

Keys and values times their scales are rounded to q's dtype. In fp16 they must lie within it, as
those do that were fp16 before they were quantised.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.kernels._attention import columns_of
from asmtune.kernels._fp8 import FORMATS, NAMES, halves, has_fp8, typed
from asmtune.kernels._scaled import extent_of_group
from asmtune.kernels.attention import attention
from asmtune.runtime.decorator import asm_autotune

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
