"""The configs of attention's kernels: blocks, warps and stages, and parts of keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import triton

from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.kernels._attention import columns_of

SPLITS = (1, 2, 4, 8, 16, 32)
"""Into how many parts keys are split."""

LEAST_OF_A_PART = 256
"""Keys of a part, at least."""

_SHARED = 227 * 1024
_RESERVED = 1024  # of each program, by the driver
_TWO_SUMS = "a thread has 64 scores, or 160 with its sums, at most"
_CAP = 128
"""Registers of a thread where two programs of eight warps share an SM."""


def of_queries(default: Config, held: int) -> Space:
    """Build the space of programs that hold a block of queries and loop over keys.

    Args:
        default: the config to fall back to.
        held: how many tensors have their block of queries in shared memory.
    """

    def fits_shared(
        BLOCK_M: int, BLOCK_N: int, D: int, num_stages: int, maxnreg: int | None
    ) -> bool:
        programs = 1 if maxnreg is None else 2
        return _fits_shared(D, held * BLOCK_M + 2 * num_stages * BLOCK_N, programs)

    return (
        _over_keys(default, {"maxnreg": (None, _CAP)})
        .where("registers are capped for two programs of eight warps", _may_cap)
        .where("queries, and keys and values in stages, fit in shared memory", fits_shared)
    )


def of_fp8(default: Config) -> Space:
    """Build the space of `of_queries` for keys and values of one byte, which may be split."""

    def fits_shared(BLOCK_M: int, BLOCK_N: int, D: int, num_stages: int) -> bool:
        # In stages a row takes half; a block of keys and one of values are widened besides.
        return _fits_shared(D, BLOCK_M + (num_stages + 2) * BLOCK_N)

    return (
        _over_keys(default, {"SPLIT": SPLITS})
        .where("queries, and keys and values in stages, fit in shared memory", fits_shared)
        .where("keys are split where programs are few", _may_split)
    )


def _over_keys(default: Config, more: Mapping[str, Sequence[int | None]]) -> Space:
    axes = {
        "BLOCK_M": (64, 16, 32, 128),
        "BLOCK_N": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (3, 2, 4),  # the first that fits replaces a default that does not
        **more,
    }

    def fits_threads(BLOCK_M: int, BLOCK_N: int, D: int, num_warps: int) -> bool:
        return _fits_threads(num_warps, (BLOCK_M, BLOCK_N, D), 1, 144)

    return (
        Space(axes, default=default)
        .where(
            "a block is of use for the number of queries",
            lambda BLOCK_M, M: _is_of_use(BLOCK_M, M) or BLOCK_M == 64,
        )
        .where("a thread has 64 scores, or 144 with its sums, at most", fits_threads)
    )


def _may_split(SPLIT: int, BLOCK_M: int, heads: int, M: int, N: int, SMS: int) -> bool:
    heads, M, N, most = _largest(heads, M, N)
    programs = heads * triton.cdiv(M, BLOCK_M) * SPLIT
    fits = most >= BLOCK_M and programs <= 4 * SMS
    return SPLIT == 1 or (fits and SPLIT * LEAST_OF_A_PART <= N)


def room_for_parts(heads: int, M: int, N: int, D: int, SMS: int) -> int:
    """Give the bytes that parts of keys take at most, by the splits of `of_fp8`."""
    heads, M, N, most = _largest(heads, M, N)
    parts = min(SPLITS[-1], N // LEAST_OF_A_PART)
    rows = min(heads * max(M, 16) * parts, 4 * SMS * most)
    return rows * (columns_of(D) + 2) * 4 if parts > 1 and heads <= 2 * SMS else 4


def _largest(heads: int, M: int, N: int) -> tuple[int, int, int, int]:
    """Give the extents of the largest problem that shares a config, and its most split rows."""
    heads, M, N = (triton.next_power_of_2(extent) for extent in (heads, M, N))
    return heads, M, N, min(64, max(16, M))


def of_keys(default: Config) -> Space:
    """Build the space of programs that hold a block of keys and loop over queries, two sums."""
    axes = {
        "BLOCK_M": (16, 32, 64, 128),
        "BLOCK_N": (32, 64, 128),
        "num_warps": (4, 8),
        "num_stages": (2, 3),
    }
    return (
        Space(axes, default=default)
        .where(
            "a block is of use for the number of keys",
            lambda BLOCK_N, N: _is_of_use(BLOCK_N, N) or BLOCK_N == 64,
        )
        .where(
            _TWO_SUMS,
            lambda BLOCK_M, BLOCK_N, D, num_warps: _fits_two(num_warps, BLOCK_N, BLOCK_M, D),
        )
        .where(
            "keys, values, and queries in stages fit in shared memory",
            lambda BLOCK_M, BLOCK_N, D, num_stages: _fits_shared(
                D, 2 * (BLOCK_N + num_stages * BLOCK_M)
            ),
        )
    )


def _fits_two(warps: int, held: int, step: int, D: int) -> bool:
    fits = _fits_threads(warps, (held, step, D), 2, 160)
    return fits or (D > 128 and held == 64)  # sums of 256 columns spill in any block


def _is_of_use(block: int, extent: int) -> bool:
    # Of 64 rows or more, blocks below 64 do without the tensor cores' widest instruction.
    return block >= 64 if extent > 64 else 2 * max(extent, 16) > block


def _fits_threads(warps: int, extents: tuple[int, int, int], results: int, most: int) -> bool:
    # `block` rows of `results` sums of D columns; more than 4 warps take 16 rows each.
    block, other, D = extents
    widths = (other, results * columns_of(D))
    scores, sums = (block * width // (warps * 32) for width in widths)
    return scores <= 64 and scores + sums <= most and (block >= 16 * warps or warps == 4)


def _may_cap(BLOCK_M: int, BLOCK_N: int, D: int, num_warps: int, maxnreg: int | None) -> bool:
    # More scores or sums a thread would spill.
    fits = max(2 * BLOCK_N, columns_of(D)) * BLOCK_M <= 64 * 32 * num_warps
    return maxnreg is None or (num_warps == 8 and fits)


def _fits_shared(D: int, rows: int, programs: int = 1) -> bool:
    return programs * (rows * columns_of(D) * 2 + _RESERVED) <= _SHARED + _RESERVED
