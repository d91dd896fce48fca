"""A tile's structure and numbers, and how the numbers of some tiles are carried over to all others.

Numbers of a tile are products of its extents mostly (elements, bytes, trips), so that their
logarithms are sums of what each axis adds: a straight line in the logarithm of the axis, and a
step for each of its values where the line does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.core.space.table import Column, SpaceTable, distinct
from asmtune.ir.asm.nvptx import OpClass

Row = NDArray[np.float64]

ISSUED: Final = (
    OpClass.INTEGER,
    OpClass.LOGIC,
    OpClass.FLOAT,
    OpClass.CONVERT,
    OpClass.SPECIAL,
    OpClass.SHUFFLE,
    OpClass.BRANCH,
)
"""Classes of element-wise instructions that take an issue slot, in the order of `costs`."""


@dataclass(frozen=True)
class AccessForm:
    """A load, store or atomic.

    `argument` is the one that the address comes from, -1 if it may be several; `size` its bytes.
    """

    kind: str
    segment: int
    line: int
    argument: int
    size: int
    element_bytes: int
    bulk: bool
    feeds_product: bool


@dataclass(frozen=True)
class CollectiveForm:
    """A reduction, scan or gather along an axis; `of_product` if a product's result goes in."""

    segment: int
    words: int
    instructions: float
    scans: bool
    of_product: bool


@dataclass(frozen=True)
class DotForm:
    """A product; its left operand comes from `registers` if it was computed, not loaded."""

    segment: int
    operand: str
    operand_bits: int
    accumulator: str
    precise: bool
    registers: bool
    chained: bool


@dataclass(frozen=True)
class LoopForm:
    """A loop; `own_stages` says that the source states its stages, for loads of any use."""

    parent: int
    depth: int
    has_dot: bool
    own_stages: bool

    @property
    def pipelines(self) -> bool:
        """Return whether its loads are copied ahead where there are stages."""
        return self.has_dot or self.own_stages


@dataclass(frozen=True)
class Structure:
    """Everything of a tile's TTIR but sizes: tiles with equal structures can be compared.

    Attributes:
        nodes: segment, costs by `ISSUED`, and whether it computes addresses, once an operation.
        accesses, collectives, dots, loops: the others, in the order of the text.
    """

    nodes: tuple[tuple[int, tuple[float, ...], bool], ...]
    accesses: tuple[AccessForm, ...]
    collectives: tuple[CollectiveForm, ...]
    dots: tuple[DotForm, ...]
    loops: tuple[LoopForm, ...]

    @cached_property
    def parts(self) -> dict[str, tuple[slice, int]]:
        """Return the places of each part in a tile's numbers, and numbers for its members."""
        lengths = {
            "nodes": (len(self.nodes), 1),
            "accesses": (len(self.accesses), 4),
            "collectives": (len(self.collectives), 3),
            "dots": (len(self.dots), 5),
            "loops": (len(self.loops), 3),
            "chains": (len(self.loops) + 1, 2),
            "whole": (1, 4),
        }
        parts, start = {}, 0
        for name, (count, width) in lengths.items():
            parts[name] = (slice(start, start + count * width), width)
            start += count * width
        return parts


@dataclass(frozen=True)
class TileFacts:
    """A tile's structure, and its numbers: elements, bytes, trips and cycles of latency.

    `numbers` has, in the order of `Structure.parts`: elements of each node; elements, contiguous
    elements, runs and the share within bounds of each access; elements that go into each
    collective, that come out, and the length of its axis; m, n, k, batch and runs of each dot;
    trips, the longest program's share, and the source's own stages of each loop; latency of each
    segment with loads waited for and with copies ahead; the words that are alive at once, bytes
    that differ, and how often one address is updated and locked.
    """

    structure: Structure
    numbers: Row


STEP: Final = 0.3
"""Weight of a value's own step beside the line: the line explains all that it can."""

OTHER: Final = 8.0
"""Distance of two values that are no numbers, such as modes: a structure seldom crosses them."""

_LEAST: Final = 1e-6
_NEARLY: Final = 1e-4


class Places:
    """Places of tiles along their axes: logarithms of numbers, and one column a value."""

    def __init__(
        self, values: Mapping[str, Sequence[Any]], columns: Mapping[str, Column], count: int
    ) -> None:
        self._levels: list[tuple[NDArray[np.intp], int]] = []
        lines, modes = [], []
        for name, column in columns.items():
            first, back = distinct({name: column}, values, count)
            own = [values[name][level] for level in column[first].tolist()]
            keys = {key: place for place, key in enumerate(dict.fromkeys(map(_key, own)))}
            if len(keys) == 1:
                continue
            level = np.array([keys[_key(value)] for value in own], dtype=np.intp)[back]
            self._levels.append((level, len(keys)))
            if all(isinstance(value, int | float) and value > 0 for value in own):
                lines.append(np.array([np.log2(value) for value in own])[back])
            else:
                modes.append(level)
        self.lines = np.array(lines, dtype=float).reshape(len(lines), count).T.copy()
        self._modes = np.array(modes, dtype=np.intp).reshape(len(modes), count).T.copy()

    @classmethod
    def of(cls, points: SpaceTable, names: Iterable[str]) -> Places:
        """Place points along some of their names."""
        columns = {name: points.columns[name] for name in names}
        return cls(points.values, columns, len(points))

    def alike(self, places: Sequence[int]) -> Row:
        """Return on how many axes every tile has the value of each of some places."""
        row: Row = np.zeros((len(self.lines), len(places)))
        for level, _ in self._levels:
            row += level[:, None] == level[places]
        return row

    def distances(self, place: int) -> Row:
        """Return the distance of every tile to one of them."""
        lines = np.abs(self.lines - self.lines[place]).sum(axis=1)
        modes = (self._modes != self._modes[place]).sum(axis=1)
        row: Row = lines + OTHER * modes
        return row

    def sample(self, most: int) -> list[int]:
        """Return tiles that show each value of each axis, then those furthest from the others."""
        count = len(self.lines)
        if count <= most:
            return list(range(count))
        centre = np.abs(self.lines - np.median(self.lines, axis=0)).sum(axis=1)
        base = int(np.argmin(centre))
        near = self.distances(base)
        chosen = {base: None}
        for level, size in self._levels:
            for value in range(size):
                if len(chosen) >= most:  # an axis may have as many values as there are tiles
                    break
                with_value = np.flatnonzero(level == value)
                chosen[int(with_value[np.argmin(near[with_value])])] = None
        nearest = np.min([self.distances(place) for place in chosen], axis=0)
        while len(chosen) < most and nearest.max() > 0:
            furthest = int(np.argmax(nearest))
            chosen[furthest] = None
            nearest = np.minimum(nearest, self.distances(furthest))
        return list(chosen)

    def design(self, rows: NDArray[np.intp]) -> Row:
        """Return the columns of the model, a row for each of these tiles: one for each value."""
        steps = [STEP * (level[rows, None] == np.arange(size)) for level, size in self._levels]
        return np.hstack([np.ones((len(rows), 1)), self.lines[rows], *steps])

    def predicted(self, rows: NDArray[np.intp], fitted: Row) -> Row:
        """Return `design(rows) @ fitted`, without a column for each value."""
        at = 1 + self.lines.shape[1]
        row: Row = fitted[0] + self.lines[rows] @ fitted[1:at]
        for level, size in self._levels:
            row += STEP * fitted[at : at + size][level[rows]]
            at += size
        return row


def _key(value: Any) -> tuple[str, Any]:
    return (type(value).__name__, value if isinstance(value, int | float) else str(value))


@dataclass(frozen=True)
class Carried:
    """The tiles of one structure, and what their numbers are computed from.

    Attributes:
        structure: of the tiles.
        members: the tiles, by position.
        exact: numbers of those that have facts, by position.
    """

    structure: Structure
    members: NDArray[np.intp]
    exact: Mapping[int, Row]
    _places: Places
    _fitted: Row
    _absent: NDArray[np.bool_]

    def numbers(self, tiles: NDArray[np.intp]) -> Row:
        """Return the numbers of some of the members, a row each."""
        numbers: Row = np.exp(self._places.predicted(tiles, self._fitted))
        numbers[:, self._absent] = 0.0
        # Whole numbers stay whole: what is cut into tiles is rounded up.
        whole = np.round(numbers)
        numbers = np.where(
            np.abs(numbers - whole) <= _NEARLY * np.maximum(1.0, whole), whole, numbers
        )
        for place, row in self.exact.items():
            numbers[tiles == place] = row
        return numbers


def carried_over(places: Places, facts: Mapping[int, TileFacts]) -> list[Carried]:
    """Return the tiles of each structure, and their numbers.

    A tile without facts has the structure of the nearest one with them.
    """
    near, least = np.zeros(len(places.lines), dtype=np.intp), np.full(len(places.lines), np.inf)
    for place in facts:
        distances = places.distances(place)
        near[distances < least] = place
        least = np.minimum(least, distances)
    known = np.array(list(facts), dtype=np.intp)
    near[known] = known
    carried = []
    for structure in dict.fromkeys(one.structure for one in facts.values()):
        exact = {p: one.numbers for p, one in facts.items() if one.structure == structure}
        own = np.array(list(exact), dtype=np.intp)
        rows = np.stack(list(exact.values()))
        logs = np.log(np.maximum(rows, _LEAST))
        fitted, *_ = np.linalg.lstsq(places.design(own), logs, rcond=1e-6)
        members = np.flatnonzero(np.isin(near, own))
        absent = np.asarray((rows <= 0).all(axis=0))
        carried.append(Carried(structure, members, exact, places, fitted, absent))
    return carried
