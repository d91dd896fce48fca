"""The matrix product: order of tiles, sums of products, activations; and the configs.

A contract is in bytes here, 16 at most: vectors are of bytes, whatever the dtype.
"""

from __future__ import annotations

import triton
import triton.language as tl

from asmtune.core.config import Config
from asmtune.core.space.constraints import Predicate
from asmtune.core.space.space import Space
from asmtune.kernels._common import vouched
from asmtune.kernels._gemm_host import LEAST_OF_A_PART, MOST_PARTS
from asmtune.kernels._split import MOST_COUNTS, SUMS_BYTES
from asmtune.kernels.gelu import gelu_of


@triton.jit
def tile_origin(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Return a tile's first row and column. Tiles go in groups of GROUP_M rows, to share L2."""
    num_m, num_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = GROUP_M * num_n
    first = (tile // group) * GROUP_M
    rows = min(num_m - first, GROUP_M)
    return (first + (tile % group) % rows) * BLOCK_M, ((tile % group) // rows) * BLOCK_N


@triton.jit
def known(ptr, number, BYTES: tl.constexpr):
    """Return a number of the pointer's elements, written so that BYTES are seen to divide it."""
    SIZE: tl.constexpr = ptr.dtype.element_ty.primitive_bitwidth // 8
    if BYTES > SIZE:
        number = vouched(number, BYTES // SIZE)
    return number


@triton.jit
def stride_of(ptr, stride, DENSE: tl.constexpr, BYTES: tl.constexpr):
    """Return a stride: 1 along the dense axis, else one that BYTES divide."""
    return 1 if DENSE else known(ptr, stride, BYTES)


@triton.jit
def sum_by_pointers(
    acc,
    operands,
    sizes,
    origin,
    steps,
    LAYOUT: tl.constexpr,
    CONTRACT: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Add the products of the blocks from `steps[0]` to `steps[1]`, loaded by all threads.

    The wrap by % keeps loads in bounds without masks along M and N.
    """
    a_ptr, stride_am, stride_ak, b_ptr, stride_bk, stride_bn = operands
    M, N, K = sizes
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
    # Offsets of 32 bits from where the tile begins: of 64 they cost half as many registers again.
    m = tl.arange(0, acc.shape[0]) % (M - origin[0])
    n = tl.arange(0, acc.shape[1]) % (N - origin[1])
    k = tl.arange(0, BLOCK_K)
    start = steps[0].to(tl.int64) * BLOCK_K
    a_ptr += origin[0].to(tl.int64) * stride_am + start * stride_ak
    b_ptr += origin[1].to(tl.int64) * stride_bn + start * stride_bk
    a = a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak
    b = b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn
    for step in range(steps[0], steps[1]):
        left = K - step * BLOCK_K
        tile_a = tl.load(a, mask=k[None, :] < left, other=0.0)
        tile_b = tl.load(b, mask=k[:, None] < left, other=0.0)
        acc = tl.dot(tile_a, tile_b, acc, out_dtype=acc.dtype)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
    return acc


@triton.jit
def operand_descriptors(
    operands,
    sizes,
    LAYOUT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Describe A and B for the copy engine, transposed where that makes their rows dense."""
    a_ptr, stride_am, stride_ak, b_ptr, stride_bk, stride_bn = operands
    M, N, K = sizes
    BLOCK_M: tl.constexpr = BLOCK[0]
    BLOCK_N: tl.constexpr = BLOCK[1]
    BLOCK_K: tl.constexpr = BLOCK[2]
    if LAYOUT[0] == "k":
        a = tl.make_tensor_descriptor(a_ptr, [M, K], [stride_am, 1], [BLOCK_M, BLOCK_K])
    else:
        a = tl.make_tensor_descriptor(a_ptr, [K, M], [stride_ak, 1], [BLOCK_K, BLOCK_M])
    if LAYOUT[1] == "n":
        b = tl.make_tensor_descriptor(b_ptr, [K, N], [stride_bk, 1], [BLOCK_K, BLOCK_N])
    else:
        b = tl.make_tensor_descriptor(b_ptr, [N, K], [stride_bn, 1], [BLOCK_N, BLOCK_K])
    return a, b


@triton.jit
def sum_by_descriptors(
    acc, descriptors, origin, steps, LAYOUT: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Add the same products, loaded by the copy engine, which reads 0 out of bounds."""
    a, b = descriptors
    for step in range(steps[0], steps[1]):
        if LAYOUT[0] == "k":
            tile_a = a.load([origin[0], step * BLOCK_K])
        else:
            tile_a = a.load([step * BLOCK_K, origin[0]]).T
        if LAYOUT[1] == "n":
            tile_b = b.load([step * BLOCK_K, origin[1]])
        else:
            tile_b = b.load([origin[1], step * BLOCK_K]).T
        acc = tl.dot(tile_a, tile_b, acc, out_dtype=acc.dtype)
    return acc


@triton.jit
def summed(
    source,
    sizes,
    origin,
    part,
    PARTS: tl.constexpr,
    LOADS: tl.constexpr,
    LAYOUT: tl.constexpr,
    CONTRACT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute one of PARTS parts of a tile's sum over K, of about as many blocks each.

    Args:
        source: descriptors of the operands, or their pointers and strides.
        sizes: M, N and K.
        origin: of the tile.
        part: which part.
        PARTS: in all.
        LOADS: "descriptors" or "pointers".
        LAYOUT: the dense axis of A, m or k, and that of B, k or n; a dot for none.
        CONTRACT: bytes that divide extents along dense axes, and other strides.
        BLOCK: BLOCK_M, BLOCK_N and BLOCK_K.
    """
    kind: tl.constexpr = source[0].dtype.element_ty if LOADS == "pointers" else source[0].dtype
    accumulator: tl.constexpr = tl.int32 if kind.is_int() else tl.float32
    acc = tl.zeros((BLOCK[0], BLOCK[1]), accumulator)
    blocks = tl.cdiv(sizes[2], BLOCK[2])
    each = tl.cdiv(blocks, PARTS)
    steps = (part * each, min(part * each + each, blocks))
    if LOADS == "descriptors":
        acc = sum_by_descriptors(acc, source, origin, steps, LAYOUT, BLOCK[2])
    else:
        acc = sum_by_pointers(acc, source, sizes, origin, steps, LAYOUT, CONTRACT, BLOCK[2])
    return acc


@triton.jit
def activated(x, ACTIVATION: tl.constexpr):
    """Apply ReLU, SiLU, or GELU by the error function; or return x itself."""
    if ACTIVATION == "relu":
        # Not a maximum, which gives 0 for NaN.
        x = tl.where(x < 0, 0.0, x)
    elif ACTIVATION == "silu":
        x = x / (1.0 + tl.exp(-x))
    elif ACTIVATION == "gelu":
        x = gelu_of(x, False)
    return x


@triton.jit
def finish_tile(acc, out, sizes, origin, ACTIVATION: tl.constexpr, MULTIPLE_C: tl.constexpr):
    """Add the bias, activate, and write the tile's part that lies within C."""
    c_ptr, stride_cm, bias_ptr = out
    N = known(c_ptr, sizes[1], MULTIPLE_C)
    m = origin[0] + tl.arange(0, acc.shape[0])
    n = origin[1] + tl.arange(0, acc.shape[1])
    if bias_ptr is not None:
        acc += tl.load(bias_ptr + n, mask=n < N, other=0.0).to(acc.dtype)[None, :]
    acc = activated(acc, ACTIVATION)
    stride = known(c_ptr, stride_cm, MULTIPLE_C)
    c_ptr += origin[0].to(tl.int64) * stride
    c = c_ptr + tl.arange(0, acc.shape[0])[:, None] * stride + n[None, :]
    inside = (m[:, None] < sizes[0]) & (n[None, :] < N)
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=inside)


DEFAULT = Config(
    {
        "LOADS": "pointers",
        "PERSISTENT": False,
        "SPLIT_K": 1,
        "BLOCK_M": 64,
        "BLOCK_N": 128,
        "BLOCK_K": 32,
        "GROUP_M": 8,
    },
    num_warps=4,
    num_stages=3,
)
"""Runs on every target, dtype and layout: 72 KiB of shared memory at most."""


def is_wide(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, SIZE: int) -> bool:
    """Return whether a block's rows are of 128 or 256 bytes, or the tile is the default's."""
    usual = tuple(DEFAULT.kwargs[f"BLOCK_{axis}"] for axis in "MNK") == (BLOCK_M, BLOCK_N, BLOCK_K)
    return usual or BLOCK_K * SIZE in (128, 256)


def space(wide: Predicate = is_wide) -> Space:
    """Build the space: variants, tiles, group height, warps and stages.

    Left out is what was slower wherever it was tried on an H200: tiles of 256 rows, walks by
    pointers, and many warps over a small tile.

    Args:
        wide: tells which blocks have rows wide enough.
    """
    axes = {
        "LOADS": ("pointers", "descriptors"),
        "PERSISTENT": (False, True),
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (32, 64, 128, 256),
        "SPLIT_K": (1, 2, 4, 8, 16, MOST_PARTS),
        "BLOCK_K": (32, 64, 128, 256),
        "GROUP_M": (8,),
        "num_warps": (4, 8),
        "num_stages": (3, 4, 5),
    }
    return (
        Space(axes, default=DEFAULT)
        .where("the copy engine takes rows at multiples of 16 bytes", _can_be_described)
        .where("a tile is under twice as high and wide as C", _is_of_use)
        .where("programs that walk have more tiles than there are processors", _can_walk)
        .where("a block's rows are of 128 or 256 bytes", wide)
        .where("a thread holds 4 to 128 accumulators, 64 or more of eight warps", _fits_threads)
        .where("blocks of a program take 48 KiB or more, or five stages", _is_deep)
        .where("a sum is split where tiles are few, as far as there is memory", _can_split)
    )


def _can_be_described(LOADS: str, BLOCK_M: int, BLOCK_N: int, MULTIPLE_STRIDES: int) -> bool:
    # The loads never limit a tile of few rows.
    return LOADS == "pointers" or (MULTIPLE_STRIDES == 16 and BLOCK_M >= 64 and BLOCK_N >= 64)


def _is_of_use(BLOCK_M: int, BLOCK_N: int, M: int, N: int) -> bool:
    # 64 rows whatever M is: fewer do without the tensor cores' widest instruction.
    high, wide = (max(64, triton.next_power_of_2(extent)) for extent in (M, N))
    return high >= BLOCK_M and wide >= BLOCK_N and (BLOCK_M >= 64 or M <= 256)


def _can_walk(
    LOADS: str, PERSISTENT: bool, BLOCK_M: int, BLOCK_N: int, M: int, N: int, SMS: int
) -> bool:
    if not PERSISTENT:
        return True
    wide = LOADS == "descriptors" and BLOCK_M * BLOCK_N >= 64 * 128
    return wide and _tiles(M, N, BLOCK_M, BLOCK_N) > SMS


def _fits_threads(BLOCK_M: int, BLOCK_N: int, num_warps: int) -> bool:
    each = BLOCK_M * BLOCK_N // (num_warps * 32)
    return (4 if num_warps == 4 else 64) <= each <= 128


def _is_deep(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, SIZE: int, num_stages: int) -> bool:
    bytes_in_flight = (BLOCK_M + BLOCK_N) * BLOCK_K * SIZE * num_stages
    usual = (BLOCK_K, num_stages) == (DEFAULT.kwargs["BLOCK_K"], DEFAULT.num_stages)
    return usual or num_stages == 5 or bytes_in_flight >= 48 << 10


def _can_split(
    PERSISTENT: bool,
    SPLIT_K: int,
    BLOCK_M: int,
    BLOCK_N: int,
    BLOCK_K: int,
    batch: int,
    M: int,
    N: int,
    K: int,
    SMS: int,
) -> bool:
    if SPLIT_K == 1:
        return True
    tiles = batch * _tiles(M, N, BLOCK_M, BLOCK_N)
    if PERSISTENT or tiles > min(SMS, MOST_COUNTS) or tiles * SPLIT_K > 4 * SMS:
        return False
    fits = tiles * SPLIT_K * BLOCK_M * BLOCK_N * 4 <= SUMS_BYTES
    return fits and SPLIT_K * max(LEAST_OF_A_PART, 4 * BLOCK_K) <= K


def _tiles(M: int, N: int, BLOCK_M: int, BLOCK_N: int) -> int:
    """Count the tiles of the largest product that shares a config with this one."""
    return triton.cdiv(triton.next_power_of_2(M), BLOCK_M) * triton.cdiv(N, BLOCK_N)
