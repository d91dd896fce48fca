"""Choose tiles that represent a space, and carry their numbers over to its other tiles.

Numbers of a tile are products of its extents mostly (elements, bytes, trips), so that their
logarithms are sums of what each axis adds: a straight line in the logarithm of the axis, and a
step for each of its values where the line does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.core.space.table import Column, SpaceTable, distinct
from asmtune.predict.features.tile.forms import Row, Structure, TileFacts

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
