"""Products of FP8 with scales: sums of groups along K, each scaled once, and checks of operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from asmtune.kernels._common import check_plain, is_expanded, is_hopper
from asmtune.kernels._fp8 import NAMES, halves, has_fp8
from asmtune.kernels._gemm import known, stride_of


@triton.jit
def multiplied(a, b, FORMATS: tl.constexpr):
    """Multiply two blocks in fp32, by tensor cores of FP8 or, where there are none, fp16."""
    if not has_fp8():
        a, b = halves(a, FORMATS[0]), halves(b, FORMATS[1])
    return tl.dot(a, b)


@triton.jit
def load_scales(scale, at, group, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """Load scales of a tile's rows or columns at a group of K: a vector, or a number shared by all.

    Args:
        scale: pointer, stride along the axis, and stride along K.
        at: the first row or column, and all of them.
        group: of K.
        GROUP: rows or columns that share a scale; 0 for all.
        BLOCK: rows or columns of the tile.
    """
    ptr, stride, stride_k = scale
    ptr += group * stride_k
    if GROUP == 0:
        found = tl.load(ptr)
    elif GROUP % BLOCK == 0:
        found = tl.load(ptr + at[0] // GROUP * stride)
    else:
        found = tl.load(ptr + at[1] // GROUP * stride)
    return found


@triton.jit
def apply_scales(acc, scales, sizes, origin, group, BLOCK: tl.constexpr, GROUPS: tl.constexpr):
    """Multiply a tile's sum over a group of K by the scales of its rows and columns."""
    m = (origin[0] + tl.arange(0, BLOCK[0])) % sizes[0]
    n = (origin[1] + tl.arange(0, BLOCK[1])) % sizes[1]
    a = load_scales(scales[0], (origin[0], m), group, GROUPS[0], BLOCK[0])
    b = load_scales(scales[1], (origin[1], n), group, GROUPS[1], BLOCK[1])
    # Numbers by each other first: every element is multiplied once then.
    if GROUPS[0] != 0 and GROUPS[0] % BLOCK[0] != 0:
        if GROUPS[1] != 0 and GROUPS[1] % BLOCK[1] != 0:
            acc = acc * a[:, None] * b[None, :]
        else:
            acc = acc * (a * b)[:, None]
    elif GROUPS[1] != 0 and GROUPS[1] % BLOCK[1] != 0:
        acc = acc * (a * b)[None, :]
    else:
        acc = acc * (a * b)
    return acc


@triton.jit
def pointed(
    operands, sizes, origin, LAYOUT: tl.constexpr, CONTRACT: tl.constexpr, BLOCK: tl.constexpr
):
    """Return pointers to A's rows and B's columns of a tile, strides along K, a block's offsets."""
    a_ptr, stride_am, stride_ak, b_ptr, stride_bk, stride_bn = operands
    M, N, _ = sizes
    stride_am = stride_of(a_ptr, stride_am, LAYOUT[0] == "m", CONTRACT[1])
    stride_ak = stride_of(a_ptr, stride_ak, LAYOUT[0] == "k", CONTRACT[1])
    stride_bk = stride_of(b_ptr, stride_bk, LAYOUT[1] == "k", CONTRACT[1])
    stride_bn = stride_of(b_ptr, stride_bn, LAYOUT[1] == "n", CONTRACT[1])
    if LAYOUT[0] == "m":
        M = known(a_ptr, M, CONTRACT[0])
    if LAYOUT[1] == "n":
        N = known(b_ptr, N, CONTRACT[0])
    # The wrap keeps loads in bounds without masks along M and N.
    m = tl.arange(0, BLOCK[0]) % (M - origin[0])
    n = tl.arange(0, BLOCK[1]) % (N - origin[1])
    k = tl.arange(0, BLOCK[2])
    a = a_ptr + origin[0].to(tl.int64) * stride_am
    b = b_ptr + origin[1].to(tl.int64) * stride_bn
    at_a = m[:, None] * stride_am + k[None, :] * stride_ak
    at_b = k[:, None] * stride_bk + n[None, :] * stride_bn
    return a, stride_ak, at_a, b, stride_bk, at_b


@triton.jit
def load_blocks(
    source,
    origin,
    start,
    end,
    LOADS: tl.constexpr,
    LAYOUT: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Load blocks of A and B from `start` along K; by pointers 0 from `end` on."""
    if LOADS == "pointers":
        a_ptr, stride_ak, at_a, b_ptr, stride_bk, at_b = source
        far = tl.cast(start, tl.int64)
        inside = tl.arange(0, BLOCK_K) < end - start
        a = tl.load(a_ptr + far * stride_ak + at_a, mask=inside[None, :], other=0.0)
        b = tl.load(b_ptr + far * stride_bk + at_b, mask=inside[:, None], other=0.0)
    else:
        if LAYOUT[0] == "k":
            a = source[0].load([origin[0], start])
        else:
            a = source[0].load([start, origin[0]]).T
        if LAYOUT[1] == "n":
            b = source[1].load([start, origin[1]])
        else:
            b = source[1].load([origin[1], start]).T
    return a, b


@triton.jit
def scaled_sum(
    source,
    scales,
    sizes,
    origin,
    steps,
    LOADS: tl.constexpr,
    LAYOUT: tl.constexpr,
    CONTRACT: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    FORMATS: tl.constexpr,
    FAST: tl.constexpr,
):
    """Compute a part of a tile's sum over K, scaled.

    A block of K lies in one group. Its product is added in fp32 after the tensor core, whose own
    sums of FP8 keep fewer digits on Hopper; FAST leaves sums that have one scale to it.

    Args:
        source: descriptors of the operands, or their pointers and strides.
        scales: those of A and of B, each a pointer, its stride along M or N, and along K.
        sizes: M, N and K.
        origin: of the tile.
        steps: which part, and of how many.
        LOADS: "descriptors" or "pointers".
        LAYOUT: the dense axis of A, m or k, and that of B, k or n; a dot for none.
        CONTRACT: bytes that divide extents along dense axes, and other strides.
        BLOCK: BLOCK_M, BLOCK_N and BLOCK_K.
        GROUPS: rows of A, columns of B and elements of K that share a scale; 0 for all.
        FORMATS: of A and B.
        FAST: see above.
    """
    BLOCK_K: tl.constexpr = BLOCK[2]
    GROUP_K: tl.constexpr = GROUPS[2]
    # Blocks of a group, the last of which may be short.
    EACH: tl.constexpr = 1 if GROUP_K == 0 else (GROUP_K + BLOCK_K - 1) // BLOCK_K
    WHOLE: tl.constexpr = GROUP_K % BLOCK_K == 0
    K = sizes[2]
    if LOADS == "pointers":
        if LAYOUT[0] == "k" or LAYOUT[1] == "k":
            K = known(source[0], K, CONTRACT[0])
        source = pointed(source, sizes, origin, LAYOUT, CONTRACT, BLOCK)
    acc = tl.zeros((BLOCK[0], BLOCK[1]), tl.float32)
    blocks = tl.cdiv(K, BLOCK_K) if WHOLE else tl.cdiv(K, GROUP_K) * EACH
    each = tl.cdiv(blocks, steps[1])
    for step in range(steps[0] * each, min(steps[0] * each + each, blocks)):
        group = step // EACH
        if WHOLE:
            start, end = step * BLOCK_K, K
        else:
            start = group * GROUP_K + step % EACH * BLOCK_K
            end = min(group * GROUP_K + GROUP_K, K)
        a, b = load_blocks(source, origin, start, end, LOADS, LAYOUT, BLOCK_K)
        if GROUP_K > 0:
            some = multiplied(a, b, FORMATS)
            acc += apply_scales(some, scales, sizes, origin, group, BLOCK, GROUPS)
        elif FAST and has_fp8():
            acc = tl.dot(a, b, acc)
        else:
            acc += multiplied(a, b, FORMATS)
    if GROUP_K == 0:
        acc = apply_scales(acc, scales, sizes, origin, 0, BLOCK, GROUPS)
    return acc


BLOCK = 128
"""Extent of groups wherever it gives as many as there are."""

EXTENTS = {"GROUP_A": (0, 1, BLOCK), "GROUP_B": (0, 1, BLOCK), "GROUP_K": (0, BLOCK)}
"""Rows of A, columns of B and elements of K that share a scale in the Gluon kernel, 0 for all."""


def extent_of_group(name: str, extent: int, count: int) -> int:
    """Give the extent of groups of an axis by their number, 0 for the whole axis.

    Raises:
        ValueError: they do not divide the axis; the message begins with `name`.
    """
    if count == 1:
        return 0
    if count == triton.cdiv(extent, BLOCK):
        return BLOCK
    if count < 1 or extent % count:
        raise ValueError(
            f"{name} has {count} groups of an axis of {extent}; it must have "
            f"{triton.cdiv(extent, BLOCK)}, of {BLOCK} each, or a number that divides {extent}"
        )
    return extent // count


def check_kinds(
    what: str,
    tensors: Mapping[str, torch.Tensor],
    kinds: Mapping[str, Mapping[torch.dtype, str]],
) -> None:
    """Refuse tensors that are not on the first one's device, or of no dtype of their own.

    Args:
        what: the public function's name.
        tensors: arguments by name.
        kinds: names of the dtypes that each may have.
    """
    for name, tensor in tensors.items():
        check_plain(what, name, tensor)
    device = next(iter(tensors.values())).device
    for name, tensor in tensors.items():
        if tensor.dtype not in kinds[name] or tensor.device != device:
            raise ValueError(
                f"{what}: {name} is {tensor.dtype} on {tensor.device}; it must be one of "
                f"{', '.join(kinds[name].values())} on {device}"
            )


def check_operands(
    operands: Mapping[str, torch.Tensor],
    scales: Mapping[str, torch.Tensor],
    out_dtype: torch.dtype,
    bias: torch.Tensor | None,
) -> None:
    """Refuse shapes, dtypes and devices that do not fit."""
    for name, operand in operands.items():
        check_plain("scaled_matmul", name, operand)
    a, b = operands["a"], operands["b"]
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0] or not a.shape[1]:
        raise ValueError(
            f"scaled_matmul: a is {tuple(a.shape)}, b is {tuple(b.shape)}; "
            "they must be (M, K) and (K, N), K 1 or more"
        )
    fp32 = {torch.float32: "fp32"}
    kinds = dict.fromkeys(operands, NAMES) | dict.fromkeys(scales, fp32)
    given = {**operands, **scales}
    if bias is not None:
        kinds, given = {**kinds, "bias": {out_dtype: str(out_dtype)}}, {**given, "bias": bias}
    check_kinds("scaled_matmul", given, kinds)
    for name, scale in scales.items():
        if scale.numel() != 1 and scale.ndim != 2:
            raise ValueError(
                f"scaled_matmul: {name} is {tuple(scale.shape)}; it must be one number, or 2-D"
            )
    if bias is not None and bias.shape != b.shape[1:]:
        raise ValueError(
            f"scaled_matmul: bias is {tuple(bias.shape)}; it must be {tuple(b.shape[1:])}"
        )
    if out_dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise ValueError(
            f"scaled_matmul: out_dtype is {out_dtype}; it must be bfloat16, float16 or float32"
        )


def fits_hopper(arguments: Mapping[str, Any]) -> bool:
    """Return whether the Gluon kernel for Hopper takes the operands of a launch."""
    a, b = arguments["a_ptr"], arguments["b_ptr"]
    return (
        arguments["LAYOUT"] == "kk"
        and arguments["MULTIPLE_STRIDES"] == arguments["MULTIPLE_C"] == 16
        and all(arguments[name] in extents for name, extents in EXTENTS.items())
        and not (is_expanded(a) or is_expanded(b))
        and is_hopper(a.device)
    )
