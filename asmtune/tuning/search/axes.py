"""The values that configs take on each axis, as coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.core.config import OPTION_AXES, Config

Place = tuple[int, ...]

_OPTIONS: Final = (*OPTION_AXES, "ir_override")  # no other axis tells files of edited IR apart


class Axes:
    """The values that some configs take, in order: numbers by size, None (no limit) last."""

    def __init__(self, configs: Sequence[Config]) -> None:
        points = [
            {**config.kwargs, **{name: getattr(config, name) for name in _OPTIONS}}
            for config in configs
        ]
        names = dict.fromkeys(name for point in points for name in point)
        self._index: dict[str, dict[tuple[int, Any], int]] = {}
        for name in names:
            values = sorted({_rank(point.get(name)) for point in points})
            if len(values) > 1:
                self._index[name] = {value: place for place, value in enumerate(values)}
        self.places: dict[Config, Place] = {
            config: tuple(index[_rank(point.get(name))] for name, index in self._index.items())
            for config, point in zip(configs, points, strict=True)
        }

    def coordinates(self, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Return a row a config, a column an axis of more than one value, from 0 to 1."""
        most = [len(index) - 1 for index in self._index.values()]
        places = np.array([self.places[config] for config in configs], dtype=np.float64)
        return places.reshape(len(configs), len(most)) / np.array(most, dtype=np.float64)


def steps(one: Place, other: Place) -> int | None:
    """Count the axes on which two places differ by one value; None if one differs by more."""
    apart = [abs(a - b) for a, b in zip(one, other, strict=True) if a != b]
    return len(apart) if all(distance == 1 for distance in apart) else None


def _rank(value: Any) -> tuple[int, Any]:
    """Make a sort key of any axis: numbers first, then text, then None."""
    if value is None:
        return 2, 0
    return (0, value) if isinstance(value, bool | int | float) else (1, str(value))
