"""Device functions of products of FP8 with scales: sums of groups along K, each scaled once."""

from __future__ import annotations

import triton
import triton.language as tl

from asmtune.kernels._fp8 import halves, has_fp8
from asmtune.kernels._gemm import known, stride_of


@triton.jit
def multiplied(a, b, FORMATS: tl.constexpr):
    """The product of two blocks in fp32, by tensor cores of FP8 or, where there are none, fp16."""
    if not has_fp8():
        a, b = halves(a, FORMATS[0]), halves(b, FORMATS[1])
    return tl.dot(a, b)


@triton.jit
def load_scales(scale, at, group, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """Scales of a tile's rows or columns at a group of K: a vector, or a number where all share it.

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
    """A tile's sum over a group of K by the scales of its rows and columns."""
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
def scaled_sum(
    source,
    scales,
    sizes,
    origin,
    part,
    PARTS: tl.constexpr,
    LOADS: tl.constexpr,
    LAYOUT: tl.constexpr,
    CONTRACT: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    FORMATS: tl.constexpr,
    FAST: tl.constexpr,
):
    """One of PARTS parts of a tile's sum over K, scaled; arguments as of `summed`.

    A block of K lies in one group. Its product is added in fp32 after the tensor core, whose own
    sums of FP8 keep fewer digits on Hopper; FAST leaves sums that have one scale to it.

    Args:
        scales: those of A and of B, each a pointer, its stride along M or N, and along K.
        GROUPS: rows of A, columns of B and elements of K that share a scale; 0 for all.
        FORMATS: of A and B.
    """
    BLOCK_K: tl.constexpr = BLOCK[2]
    GROUP_K: tl.constexpr = GROUPS[2]
    # Blocks of a group, the last of which may be short.
    EACH: tl.constexpr = 1 if GROUP_K == 0 else (GROUP_K + BLOCK_K - 1) // BLOCK_K
    WHOLE: tl.constexpr = GROUP_K % BLOCK_K == 0
    M, N, K = sizes
    acc = tl.zeros((BLOCK[0], BLOCK[1]), tl.float32)
    blocks = tl.cdiv(K, BLOCK_K) if WHOLE else tl.cdiv(K, GROUP_K) * EACH
    each = tl.cdiv(blocks, PARTS)
    k = tl.arange(0, BLOCK_K)
    if LOADS == "pointers":
        a_ptr, stride_am, stride_ak, b_ptr, stride_bk, stride_bn = source
        stride_am = stride_of(a_ptr, stride_am, LAYOUT[0] == "m", CONTRACT[1])
        stride_ak = stride_of(a_ptr, stride_ak, LAYOUT[0] == "k", CONTRACT[1])
        stride_bk = stride_of(b_ptr, stride_bk, LAYOUT[1] == "k", CONTRACT[1])
        stride_bn = stride_of(b_ptr, stride_bn, LAYOUT[1] == "n", CONTRACT[1])
        if LAYOUT[0] == "m":
            M = known(a_ptr, M, CONTRACT[0])
        if LAYOUT[1] == "n":
            N = known(b_ptr, N, CONTRACT[0])
        if LAYOUT[0] == "k" or LAYOUT[1] == "k":
            K = known(a_ptr, K, CONTRACT[0])
        m = tl.arange(0, BLOCK[0]) % (M - origin[0])
        n = tl.arange(0, BLOCK[1]) % (N - origin[1])
        a_ptr += origin[0].to(tl.int64) * stride_am
        b_ptr += origin[1].to(tl.int64) * stride_bn
        at_a = m[:, None] * stride_am + k[None, :] * stride_ak
        at_b = k[:, None] * stride_bk + n[None, :] * stride_bn
    for step in range(part * each, min(part * each + each, blocks)):
        if WHOLE:
            start = step * BLOCK_K
            end = K
        else:
            start = step // EACH * GROUP_K + step % EACH * BLOCK_K
            end = min(step // EACH * GROUP_K + GROUP_K, K)
        if LOADS == "pointers":
            far = start.to(tl.int64)
            left = end - start
            a = tl.load(a_ptr + far * stride_ak + at_a, mask=k[None, :] < left, other=0.0)
            b = tl.load(b_ptr + far * stride_bk + at_b, mask=k[:, None] < left, other=0.0)
        else:
            if LAYOUT[0] == "k":
                a = source[0].load([origin[0], start])
            else:
                a = source[0].load([start, origin[0]]).T
            if LAYOUT[1] == "n":
                b = source[1].load([start, origin[1]])
            else:
                b = source[1].load([origin[1], start]).T
        if GROUP_K == 0 and FAST and has_fp8():
            acc = tl.dot(a, b, acc)
        elif GROUP_K == 0:
            acc += multiplied(a, b, FORMATS)
        else:
            group = step // EACH
            some = multiplied(a, b, FORMATS)
            acc += apply_scales(some, scales, sizes, origin, group, BLOCK, GROUPS)
    if GROUP_K == 0:
        acc = apply_scales(acc, scales, sizes, origin, 0, BLOCK, GROUPS)
    return acc
