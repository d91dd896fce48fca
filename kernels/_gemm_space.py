"""The configs of the matrix product: its variants, tiles, warps and stages."""

from __future__ import annotations

import triton

from asmtune.core.config import Config
from asmtune.core.space.constraints import Predicate
from asmtune.core.space.space import Space
from asmtune.kernels._gemm_host import LEAST_OF_A_PART, MOST_PARTS
from asmtune.kernels._split import MOST_COUNTS, SUMS_BYTES

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
