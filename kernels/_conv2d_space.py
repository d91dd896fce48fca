"""The configs of the convolution: its tiles, programs that share one, warps and stages."""

from __future__ import annotations

from asmtune.core.config import Config
from asmtune.core.space.space import Space
from asmtune.kernels._conv2d_host import FEWEST, MOST_PARTS, sums_bytes

DEFAULT = Config(
    {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "SPLIT": 1}, num_warps=4, num_stages=3
)
"""Runs on every target and dtype: 48 KiB of shared memory at most."""

_LEAST_DEPTH = 4 * FEWEST


def space() -> Space:
    """Build the space: some 30 to 400 configs a layer."""
    axes = {
        "BLOCK_M": (64, 128, 256),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (32, 64, 128),
        "SPLIT": tuple(range(1, MOST_PARTS + 1)),
        "num_warps": (4, 8),
        "num_stages": (1, 2, 3, 4, 5),
    }
    return (
        Space(axes, default=DEFAULT)
        .where(
            "a thread holds 32 to 128 accumulators, or 16 of few filters",
            lambda BLOCK_M, BLOCK_N, num_warps: (
                (16 if BLOCK_N == 32 else 32) <= BLOCK_M * BLOCK_N // (num_warps * 32) <= 128
            ),
        )
        .where(
            "a tile is under twice as wide as there are filters, and 32 wide for as few",
            lambda BLOCK_N, filters: (
                filters <= 32 if BLOCK_N == 32 else BLOCK_N == 64 or 2 * filters > BLOCK_N
            ),
        )
        .where("a step is as deep as its loads are long", _is_of_use)
        .where(
            "one step needs one stage",
            lambda BLOCK_K, num_stages, channels: num_stages > 1 or FEWEST <= channels <= BLOCK_K,
        )
        .where("few tiles with deep sums are shared", _may_split)
    )


def _is_of_use(BLOCK_K: int, num_stages: int, channels: int) -> bool:
    if channels < FEWEST:  # of which a step has several taps
        return BLOCK_K <= 64
    if BLOCK_K == 32:
        return channels < 64 or num_stages == 3
    # More stages of 128 channels leave no room for a second program on a multiprocessor.
    return 2 * channels > BLOCK_K and (BLOCK_K == 64 or num_stages <= 3)


def _may_split(
    SPLIT: int, batch: int, height: int, width: int, channels: int, filters: int
) -> bool:
    return SPLIT == 1 or (
        channels >= _LEAST_DEPTH and sums_bytes(batch, height, width, filters) > 0
    )
