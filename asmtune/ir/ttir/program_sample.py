"""Which programs of a grid to evaluate: all that differ, or a fixed sample."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product
from typing import Final

SAMPLE: Final = 64
"""Programs evaluated at most where loops have to be walked, corners of the grid aside."""
SIMPLE_SAMPLE: Final = 256
"""Programs evaluated at most of a kernel without such loops."""
_GOLDEN: Final = (math.sqrt(5) - 1) / 2

Program = tuple[int, int, int]


def sample(
    grid: Program, axes: Iterable[int], limit: int = SAMPLE
) -> tuple[list[Program], list[Program]]:
    """Programs that stand for a grid, and corners for the extremes.

    Args:
        grid: programs along three axes.
        axes: those whose program ids matter.
        limit: programs at most.

    Returns:
        Programs of equal weight, at most `limit`: all of them where that suffices, else
        one out of each of as many equal spans, at a place in it that follows the golden
        ratio, so that no period of the grid meets them all alike. And the corners of the
        grid where they are not all, to be looked at for the extremes.
    """
    sizes = [size if axis in axes else 1 for axis, size in enumerate(grid)]
    total = math.prod(sizes)
    if total <= limit:
        return [_program(place, sizes) for place in range(total)], []
    chosen = [int((place + (place * _GOLDEN) % 1.0) * total / limit) for place in range(limit)]
    corners = product(*[sorted({0, size - 1}) for size in sizes])
    return [_program(place, sizes) for place in chosen], [(x, y, z) for x, y, z in corners]


def _program(place: int, sizes: list[int]) -> Program:
    x, y, _ = sizes
    return place % x, place // x % y, place // (x * y)
