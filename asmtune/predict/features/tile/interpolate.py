"""Choose tiles that stand for a space, and carry their numbers over to its other tiles.

Numbers of a tile are products of its extents mostly (elements, bytes, trips), so that their
logarithms are sums of what each axis adds: a straight line in the logarithm of the axis, and a
step for each of its values where the line does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.predict.features.tile.forms import Row, Structure, TileFacts

Tile = tuple[tuple[str, Any], ...]
"""Values of a config's own parameters, sorted by name."""

STEP: Final = 0.3
"""Weight of a value's own step beside the line: the line explains all that it can."""

OTHER: Final = 8.0
"""Distance of two values that are no numbers, such as modes: a structure seldom crosses them."""

_LEAST: Final = 1e-6
_NEARLY: Final = 1e-4


class Places:
    """Places of tiles along their axes: logarithms of numbers, and one column a value."""

    def __init__(self, tiles: Sequence[Tile]) -> None:
        values: dict[str, dict[Any, None]] = {}
        for tile in tiles:
            for name, value in tile:
                values.setdefault(name, {})[_key(value)] = None
        self._axes = {name: list(own) for name, own in values.items() if len(own) > 1}
        scaled = {
            name: all(isinstance(v, int | float) and v > 0 for _, v in own)
            for name, own in self._axes.items()
        }
        self._scaled = [name for name in self._axes if scaled[name]]
        levels = {
            name: {key: place for place, key in enumerate(own)} for name, own in self._axes.items()
        }
        found = [dict(tile) for tile in tiles]
        self.lines = np.array(
            [[np.log2(tile[name]) for name in self._scaled] for tile in found], dtype=float
        ).reshape(len(tiles), -1)
        columns = []
        for name, own in levels.items():
            index = np.array([own[_key(tile[name])] for tile in found])
            columns.append(np.eye(len(own))[index])
        self.steps = np.hstack(columns) if columns else np.zeros((len(tiles), 0))
        modes = [name for name in self._axes if not scaled[name]]
        self._modes = np.array(
            [[levels[name][_key(tile[name])] for name in modes] for tile in found], dtype=float
        ).reshape(len(tiles), -1)

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
        for column in self.steps.T:
            with_value = np.flatnonzero(column)
            chosen[int(with_value[np.argmin(near[with_value])])] = None
        chosen = dict.fromkeys(list(chosen)[:most])
        nearest = np.min([self.distances(place) for place in chosen], axis=0)
        while len(chosen) < most and nearest.max() > 0:
            furthest = int(np.argmax(nearest))
            chosen[furthest] = None
            nearest = np.minimum(nearest, self.distances(furthest))
        return list(chosen)

    def design(self) -> Row:
        """Return the columns of the model, a row for each tile."""
        ones = np.ones((len(self.lines), 1))
        return np.hstack([ones, self.lines, STEP * self.steps])


def _key(value: Any) -> tuple[str, Any]:
    return (type(value).__name__, value if isinstance(value, int | float) else str(value))


def carried_over(
    places: Places, facts: Mapping[int, TileFacts]
) -> dict[Structure, tuple[NDArray[np.intp], Row]]:
    """Return the tiles of each structure, by position, and their numbers, a row each.

    A tile without facts has the structure of the nearest one with them.
    """
    known = list(facts)
    near = np.argmin([places.distances(place) for place in known], axis=0)
    design = places.design()
    groups: dict[Structure, list[int]] = {}
    for place in range(len(design)):
        source = place if place in facts else known[near[place]]
        groups.setdefault(facts[source].structure, []).append(place)
    tables = {}
    for structure, members in groups.items():
        own = [place for place in known if facts[place].structure == structure]
        rows = np.stack([facts[place].numbers for place in own])
        logs = np.log(np.maximum(rows, _LEAST))
        fitted, *_ = np.linalg.lstsq(design[own], logs, rcond=1e-6)
        numbers = np.exp(design[members] @ fitted)
        numbers[:, (rows <= 0).all(axis=0)] = 0.0
        # Whole numbers stay whole: what is cut into tiles is rounded up.
        whole = np.round(numbers)
        numbers = np.where(
            np.abs(numbers - whole) <= _NEARLY * np.maximum(1.0, whole), whole, numbers
        )
        exact = dict(zip(own, rows, strict=True))
        for row, place in enumerate(members):
            if place in exact:
                numbers[row] = exact[place]
        tables[structure] = (np.array(members), numbers)
    return tables
