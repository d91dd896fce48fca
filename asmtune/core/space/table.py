"""`SpaceTable`: configs as columns of numbers, so that a million are arrays and no objects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from asmtune.base.errors import SpaceError
from asmtune.core.config import AMD_OPTIONS, OPTION_AXES, OPTION_DEFAULTS, Config
from asmtune.core.space.constraints import Constraint

Column = NDArray[np.integer[Any]]
Place = NDArray[np.intp]

MOST: Final = 4_000_000
"""Most configs of a space that are enumerated: a minute and a gigabyte where all are ranked."""

LACKING: Final = "@lacking"
"""Value of a name that a config of a list lacks: none that a parameter is given."""

_AT_ONCE: Final = 4096


class SpaceTable(Sequence[Config]):
    """Configs, a column for each name: an element is made when it is asked for, and not kept.

    Args:
        values: the values of each name, none of them twice.
        columns: by name, the position of each config's value among these; all of one length.
        given: configs by place that exist already, with their hooks and files.
    """

    def __init__(
        self,
        values: Mapping[str, Sequence[Any]],
        columns: Mapping[str, Column],
        given: Mapping[int, Config] | None = None,
    ) -> None:
        self.values, self.columns, self.given = values, columns, given or {}
        self._count = len(next(iter(columns.values())))

    @classmethod
    def of(cls, configs: Iterable[Config]) -> SpaceTable:
        """Lay out configs that exist; points are returned as they are."""
        if isinstance(configs, SpaceTable):
            return configs
        given = dict(enumerate(configs))
        rows = [_values(config) for config in given.values()]
        values, columns = {}, {}
        for name in dict.fromkeys([*OPTION_AXES, *(name for row in rows for name in row)]):
            levels: dict[Any, int] = {}
            column = [levels.setdefault(row.get(name, LACKING), len(levels)) for row in rows]
            values[name], columns[name] = tuple(levels), np.array(column, dtype=np.intp)
        return cls(values, columns, given)

    @classmethod
    def spanned(
        cls,
        axes: Mapping[str, Sequence[Any]],
        constraints: Iterable[Sequence[Constraint]],
        context: Mapping[str, Any],
    ) -> SpaceTable:
        """Enumerate the points of axes that satisfy constraints, the last axis fastest.

        Args:
            axes: values by name.
            constraints: to check before the first axis, and after each axis, as `planned` has them.
            context: further values that constraints may name.

        Raises:
            SpaceError: there are more than `MOST`, or a constraint raised.
        """
        expansion = _Expansion(axes, context)
        columns = expansion.columns([*constraints])
        fixed = {name: (usual,) for name, usual in OPTION_DEFAULTS.items() if name not in axes}
        zeros = {name: np.zeros(expansion.count, dtype=np.uint8) for name in fixed}
        return cls({**axes, **fixed}, {**columns, **zeros})

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Config: ...
    @overload
    def __getitem__(self, place: slice) -> SpaceTable: ...
    def __getitem__(self, place: int | slice) -> Config | SpaceTable:
        if isinstance(place, slice):
            return self.take(np.arange(self._count)[place])
        at = range(self._count)[place]
        own = self.given.get(at)
        return own or Config.from_dict({n: v[self.columns[n][at]] for n, v in self.values.items()})

    def __iter__(self) -> Iterator[Config]:
        names = list(self.values)
        for start in range(0, self._count, _AT_ONCE):
            columns = [self._decoded(n, slice(start, start + _AT_ONCE)) for n in names]
            for at, row in enumerate(zip(*columns, strict=True), start):
                own = self.given.get(at)
                yield own or Config.from_dict(dict(zip(names, row, strict=True)))

    def take(self, places: Place) -> SpaceTable:
        """Return the points at some places, in their order."""
        given = {}
        if self.given:
            own = ((at, self.given.get(place)) for at, place in enumerate(places.tolist()))
            given = {at: config for at, config in own if config is not None}
        return SpaceTable(self.values, {n: c[places] for n, c in self.columns.items()}, given)

    @property
    def tile_names(self) -> list[str]:
        """Return the sorted names of the kernel's own parameters, which decide its TTIR."""
        return sorted(self.values.keys() - {*OPTION_AXES, *AMD_OPTIONS})

    def groups(self, names: Iterable[str]) -> tuple[Place, Place]:
        """Return the first place of each combination of the names' values, and all places' ones."""
        own = {name: self.columns[name] for name in names}
        return distinct(own, self.values, self._count)

    def equal(self, name: str, value: Any) -> NDArray[np.bool_]:
        """Return where a name has a value."""
        levels = [place for place, own in enumerate(self.values[name]) if own == value]
        found: NDArray[np.bool_] = np.isin(self.columns[name], levels)
        return found

    def present(self, name: str) -> set[Any]:
        """Return the values of a name that a config has."""
        return {self.values[name][level] for level in np.unique(self.columns[name]).tolist()}

    def find(self, config: Config) -> int | None:
        """Return the first place with a config's values; names that the points lack are ignored."""
        values = _values(config)
        found = np.ones(self._count, dtype=bool)
        for name in self.values:
            found &= self.equal(name, values.get(name, LACKING))
        return int(np.argmax(found)) if found.any() else None

    def led_by(self, config: Config) -> SpaceTable:
        """Return these points behind a config, which is left out among them."""
        place = self.find(config)
        if place is not None and self[place] == config:
            rest = np.delete(np.arange(self._count), place)
            first = self.take(np.array([place, *rest], dtype=np.intp))
            return SpaceTable(first.values, first.columns, {**first.given, 0: config})
        one, values, columns = SpaceTable.of([config]), {}, {}
        for name in dict.fromkeys([*self.values, *one.values]):
            own = tuple(self.values.get(name, (LACKING,)))
            (value,) = one.values.get(name, (LACKING,))
            values[name] = own if value in own else (*own, value)
            column = self.columns.get(name, np.zeros(self._count, dtype=np.uint8))
            columns[name] = np.array([values[name].index(value), *column.tolist()], dtype=np.intp)
        given = {place + 1: own for place, own in self.given.items()}
        return SpaceTable(values, columns, {0: config, **given})

    def _decoded(self, name: str, part: slice) -> list[Any]:
        values = self.values[name]
        return [values[level] for level in self.columns[name][part].tolist()]


def _values(config: Config) -> dict[str, Any]:
    return {**config.kwargs, **{name: getattr(config, name) for name in OPTION_AXES}}


def distinct(
    columns: Mapping[str, Column], values: Mapping[str, Sequence[Any]], count: int
) -> tuple[Place, Place]:
    """Return the first place of each combination of columns, in order, and each place's one."""
    code, radix = np.zeros(count, dtype=np.int64), 1
    for name, column in columns.items():
        size = len(values[name])
        if radix * size >= 2**62:
            code = np.unique(code, return_inverse=True)[1]
            radix = count
        code, radix = code * size + column, radix * size
    _, first, back = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return first[order], ranks[back.ravel()]


class _Expansion:
    """Binds one axis after another, and checks each constraint once a combination of its axes.

    Axes that no constraint names are bound last, when the number of points is known. The order of
    the others is the space's own: a predicate may rely on another that goes first.
    """

    def __init__(self, axes: Mapping[str, Sequence[Any]], context: Mapping[str, Any]) -> None:
        self._axes, self._context = axes, context
        self._columns: dict[str, Column] = {}
        self.count = 1

    def columns(self, plan: Sequence[Sequence[Constraint]]) -> dict[str, Column]:
        needed = {name for level in plan for constraint in level for name in constraint.needs}
        free = [name for name in self._axes if name not in needed]
        self._check(plan[0])
        for name, level in zip(self._axes, plan[1:], strict=True):
            if name in needed:
                self._bind([name])
                self._check(level)
        self._bind(free)
        columns = {name: self._columns[name] for name in self._axes}
        if list(self._columns) != list(columns):
            order = np.lexsort([*reversed(columns.values())])
            columns = {name: column[order] for name, column in columns.items()}
        return columns

    def _bind(self, names: Sequence[str]) -> None:
        sizes = [len(self._axes[name]) for name in names]
        count = self.count * math.prod(sizes)
        if count > MOST:
            size = math.prod(map(len, self._axes.values()))
            bound = ", ".join([*self._columns, *names])
            raise SpaceError(
                f"a space of {size:,} configs is too large: {count:,} combinations of {bound}, "
                f"{MOST:,} at most; give axes fewer values, add a constraint that names few of "
                "them, or list a sample of the configs"
            )
        for name, size in zip(names, sizes, strict=True):
            levels = np.arange(size, dtype=np.min_scalar_type(size - 1))
            self._columns = {n: np.repeat(c, size) for n, c in self._columns.items()}
            self._columns[name] = np.tile(levels, self.count)
            self.count *= size

    def _check(self, level: Sequence[Constraint]) -> None:
        for constraint in level:
            own = {n: c for n, c in self._columns.items() if n in constraint.needs}
            first, back = distinct(own, self._axes, self.count)
            values = [[self._axes[n][i] for i in c[first].tolist()] for n, c in own.items()]
            rows = zip(*values, strict=True) if own else [()] * len(first)
            points = ({**self._context, **dict(zip(own, row, strict=True))} for row in rows)
            holds = np.array([constraint.holds(point) for point in points], dtype=bool)[back]
            self._columns = {name: column[holds] for name, column in self._columns.items()}
            self.count = int(np.count_nonzero(holds))
