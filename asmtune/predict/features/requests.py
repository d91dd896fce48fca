"""Requests to global memory: the sectors that one memory instruction of a warp touches.

How the lanes of a warp lie over a tile follows from its layout; which sectors of 32 bytes they
touch depends on the launch's strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from operator import mul
from typing import Final

import numpy as np
from numpy.typing import NDArray

from asmtune.ir.ttir.strides import Steps, offset
from asmtune.predict.features.sketch.layouts import WARP, Basis, Shape

Places = NDArray[np.int64]

SECTOR: Final = 32
"""Bytes of a sector, the least that L1 and L2 move."""

LINE: Final = 128
"""Bytes of a cache line of L1."""

LINE_CYCLES: Final = 1.3
"""Cycles of L1 to look up a line in one half of its tags (measured over the H200's recordings).

Rows whose distance is a multiple of 256 bytes lie in one half: 32 of them cost twice as much as
rows of another distance.
"""

_LOOKED_AT: Final = 16
"""Requests of a thread's registers that are looked at: further ones are alike."""

_APART: Final = 37 * 128
"""Bytes between elements at an unknown distance: each has a sector of its own."""


@dataclass(frozen=True, slots=True)
class SectorsPerRequest:
    """Memory that one request of a warp touches, the mean over a tile.

    Attributes:
        sectors: of 32 bytes.
        lines: of 128 bytes, in the busier half: odd ones or even ones.
        fresh: share of the sectors that no earlier request of the same warp has touched.
        lanes: share of the lanes that have an element of their own.
        share: of the requests that bounds leave.
    """

    sectors: float
    lines: float
    fresh: float
    lanes: float
    share: float = 1.0

    def cycles(self, at_once: int = 4, *, copies: bool) -> float:
        """Return L1's cycles for the request: the lines it looks up, and `at_once` sectors a cycle.

        Copies of 16 bytes a thread into shared memory pass by the lines.
        """
        return max(1.0, 0.0 if copies else self.lines * LINE_CYCLES, self.sectors / at_once)

    def within(self, size: float, share: float) -> SectorsPerRequest:
        """Return the same of an argument of `size` bytes: a small table has few lines."""
        sectors, lines = size / SECTOR + 1, size / LINE / 2 + 1
        sectors, lines = min(self.sectors, sectors), min(self.lines, lines)
        return replace(self, sectors=sectors, lines=lines, share=share)


@dataclass(frozen=True, slots=True)
class Request:
    """A load, a store or an atomic of a tile, as the threads of a warp share it.

    Attributes:
        shape: of the tile.
        element_bytes: of one element in memory.
        axis: along which a thread's neighbours come first.
        lanes, registers: bases of the layout.
    """

    shape: Shape
    element_bytes: int
    axis: int
    lanes: tuple[Basis, ...]
    registers: tuple[Basis, ...]


def beside_each_other(width: int, lanes: int = WARP, sector: int = SECTOR) -> SectorsPerRequest:
    """Return what a request touches whose lanes move `width` bytes each, without gaps."""
    size = width * lanes
    return SectorsPerRequest(max(1.0, size / sector), max(1.0, size / LINE / 2), 1.0, 1.0)


def weighted(parts: Sequence[SectorsPerRequest], weights: Sequence[float]) -> SectorsPerRequest:
    """Return the mean of what several requests touch."""
    columns = zip(*map(astuple, parts), strict=True)
    return SectorsPerRequest(*(sum(map(mul, column, weights)) / sum(weights) for column in columns))


@lru_cache(maxsize=1 << 16)
def touched(
    request: Request, strides: Steps, width: int, sector: int = SECTOR
) -> SectorsPerRequest:
    """Return what a request touches where neighbours lie `strides` elements apart.

    Args:
        request: of a tile.
        strides: along each axis; None where the distance is unknown.
        width: bytes that an instruction moves for each thread.
        sector: bytes of a sector.
    """
    far = [_APART * 101**axis // request.element_bytes for axis in range(len(strides))]
    steps = [far[axis] if step is None else step for axis, step in enumerate(strides)]
    run = max(1, width // request.element_bytes)
    outer = [
        basis
        for basis in request.registers
        if not (0 < basis[request.axis] < run and sum(map(bool, basis)) == 1)
    ]
    count, axes = min(_LOOKED_AT, 1 << len(outer)), len(request.shape)
    registers = _combinations(outer, count, axes)
    places = registers[:, None] ^ _combinations(request.lanes, 1 << len(request.lanes), axes)
    elements = sum(offset(step, places[..., axis]) for axis, step in enumerate(steps))
    first = np.broadcast_to(elements * request.element_bytes, places.shape[:-1])
    sectors, lines = _covered(first, width, sector), _covered(first, width, LINE)
    odd = (_is_new(lines) & (lines % 2 == 1)).sum(axis=1)
    busier = np.maximum(odd, _is_new(lines).sum(axis=1) - odd).sum()
    touched_sectors = int(_is_new(sectors).sum())
    lanes = 1 << sum(any(basis) for basis in request.lanes)
    return SectorsPerRequest(
        touched_sectors / count,
        int(busier) / count,
        len(np.unique(sectors)) / max(1, touched_sectors),
        lanes / (1 << len(request.lanes)),
    )


def _combinations(bases: Sequence[Basis], count: int, axes: int) -> Places:
    """Return the places that the numbers from 0 name, each bit a basis; one column an axis."""
    places = np.zeros((count, axes), dtype=np.int64)
    for bit, basis in enumerate(bases):
        places[np.arange(count) >> bit & 1 == 1] ^= np.array(basis, dtype=np.int64)
    return places


def _covered(first: Places, width: int, unit: int) -> Places:
    """Return the units of memory from each first byte to its last, sorted; a row a request."""
    start, end = first // unit, (first + width - 1) // unit
    most = (width - 1) // unit + 2
    return np.sort(np.hstack([np.minimum(start + step, end) for step in range(most)]), axis=1)


def _is_new(units: Places) -> NDArray[np.bool_]:
    """Return where a sorted row has another unit than just before."""
    new = np.ones(units.shape, dtype=bool)
    new[:, 1:] = units[:, 1:] != units[:, :-1]
    return new


Requests = Mapping[tuple[int, str], tuple[Request, ...]]
"""Requests by line of the source and direction: "load", "store" or "atomic"."""

BankWays = Mapping[tuple[int, str], float]
"""Passes over those that would do, by line and direction: "load", "store", or "copy" into."""
