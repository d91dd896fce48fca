"""Places of configs along the axes of their space, and samples of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.base.deadline import paused_collection
from asmtune.core.config import Config
from asmtune.core.space.table import Column, SpaceTable, distinct
from asmtune.ir.ttir.work import Work
from asmtune.predict.prune.front import ProblemAnalysis

Row = NDArray[np.float64]

OTHER: Final = 8.0
"""Distance of two values that are no numbers, such as modes."""

MOST_TILES: Final = 24
"""Tiles in a sample: one takes 15 to 30 ms to lower."""


class Places:
    """Places of configs along their axes: logarithms of numbers, and one level a value."""

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
        """Return on how many axes every config has the value of each of some places."""
        row: Row = np.zeros((len(self.lines), len(places)))
        for level, _ in self._levels:
            row += level[:, None] == level[places]
        return row

    def distances(self, place: int) -> Row:
        """Return the distance of every config to one of them, in doublings."""
        lines = np.abs(self.lines - self.lines[place]).sum(axis=1)
        modes = (self._modes != self._modes[place]).sum(axis=1)
        row: Row = lines + OTHER * modes
        return row

    def sample(self, most: int) -> list[int]:
        """Return configs that show each value of each axis, then those furthest from the others."""
        count = len(self.lines)
        if count <= most:
            return list(range(count))
        centre = np.abs(self.lines - np.median(self.lines, axis=0)).sum(axis=1)
        base = int(np.argmin(centre))
        near = self.distances(base)
        chosen = {base: None}
        for level, size in self._levels:
            for value in range(size):
                if len(chosen) >= most:  # an axis may have as many values as there are configs
                    break
                with_value = np.flatnonzero(level == value)
                chosen[int(with_value[np.argmin(near[with_value])])] = None
        nearest = np.min([self.distances(place) for place in chosen], axis=0)
        while len(chosen) < most and nearest.max() > 0:
            furthest = int(np.argmax(nearest))
            chosen[furthest] = None
            nearest = np.minimum(nearest, self.distances(furthest))
        return list(chosen)


def _key(value: Any) -> tuple[str, Any]:
    return (type(value).__name__, value if isinstance(value, int | float) else str(value))


@paused_collection()
def sampled_works(front: ProblemAnalysis, configs: Sequence[Config]) -> list[Work]:
    """Return the works of configs that are lowered already, and of one config a tile.

    It lowers a sample of many tiles, which shows each value of each axis.
    """
    points = SpaceTable.of(configs)
    tiles = points.take(points.groups(points.tile_names)[0])
    if len(tiles) > MOST_TILES:
        tiles = tiles.take(np.array(Places.of(tiles, tiles.tile_names).sample(MOST_TILES)))
    return front.works([*front.analysed(configs), *tiles])
