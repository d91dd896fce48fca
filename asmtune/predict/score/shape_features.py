"""Quantities of a launch that follow from its sizes and its config alone: tiles, waves, trips.

A record holds sizes by name and a config's values, and no grid. A `Layout` says which value
tiles which size, and whether its tiles are programs or trips of a loop; one launch tells it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.core.config import OPTION_AXES, Config

Matrix = NDArray[np.float64]

_TILE_WORDS: Final = frozenset({"block", "size", "tile", "b", "blk"})
_NO_CAP: Final = 256  # registers of a thread without a cap; the most that a thread can have is 255
_ALIGNED: Final = 16  # Triton compiles other code for sizes that 16 divides


def sizes_of(shape: Mapping[str, Any]) -> dict[str, int]:
    """Return the whole numbers above 0 of a key's shape: what a model may interpolate over."""
    return {name: v for name, v in shape.items() if type(v) is int and v > 0}


@dataclass(frozen=True)
class Layout:
    """Use of sizes: tiled by which value of a config, to programs or to trips.

    Attributes:
        tiles: the size that a config's value tiles, by the value's name.
        loops: names of values whose tiles are trips of a loop; those of others are programs.
        programs: sizes without a tile that multiply the programs; others belong to a tile.
        splits: names of values that multiply the programs, such as `SPLIT_K`.
    """

    tiles: Mapping[str, str]
    loops: frozenset[str] = frozenset()
    programs: frozenset[str] = frozenset()
    splits: frozenset[str] = frozenset()

    def aligned(self, sizes: Mapping[str, int]) -> Matrix:
        """Return 1 for each size for which Triton compiles the code that loads vectors, else 0.

        A size of 1 is a constant, and one that only multiplies the programs, as a batch, is no
        row's length.
        """
        return np.array(
            [
                float(value == 1 or value % _ALIGNED == 0 or name in self.programs)
                for name, value in sizes.items()
            ]
        )

    @classmethod
    def of(
        cls, sizes: Mapping[str, int], axes: Sequence[str], launches: Sequence[tuple[Config, int]]
    ) -> Layout:
        """Read a layout off the programs that a grid gives some configs at one shape.

        Where several explain the programs, equal names decide: `M` and `BLOCK_SIZE_M`, `rows`
        and `ROWS`. Where none does, as with a fixed number of programs, only names count, and
        every tile is a trip.
        """
        named = _named(sizes, axes)

        def _cut(value: int, axis: str) -> bool:
            return any(value > config.kwargs[axis] for config, _ in launches)

        best: tuple[int, Layout] | None = None
        used = sorted(axes, key=lambda axis: axis not in named)[:_MOST_AXES]
        own = dict(itertools.islice(sizes.items(), _MOST_SIZES))
        # One tile, as of a batch of 1, explains nothing: it would take a loop's tile for its own.
        options = (
            [None, _SPLIT, *(s for s, v in own.items() if named.get(axis) == s or _cut(v, axis))]
            for axis in used
        )
        for choice in itertools.product(*options):
            layout = _explains(dict(zip(used, choice, strict=True)), own, launches)
            if layout is None:
                continue
            agreed = sum(named.get(axis) == size for axis, size in layout.tiles.items())
            rank = 2 * agreed + len(layout.tiles) - 2 * len(layout.splits)
            if best is None or rank > best[0]:
                best = rank, layout
        return _with_loops(Layout({}) if best is None else best[1], sizes, axes, named)


_SPLIT: Final = "*"
_MOST_AXES: Final = 5
_MOST_SIZES: Final = 6
"""All choices of so many are tried: some tenths of a second."""


def _named(sizes: Iterable[str], axes: Iterable[str]) -> dict[str, str]:
    """Return the size that a value is named after."""
    own = {name.lower(): name for name in sizes}
    named = {}
    for axis in axes:
        words = (word for word in axis.lower().split("_") if word not in _TILE_WORDS)
        size = own.get("_".join(words))
        if size is not None:
            named[axis] = size
    return named


def _explains(
    choice: Mapping[str, str | None],
    sizes: Mapping[str, int],
    launches: Sequence[tuple[Config, int]],
) -> Layout | None:
    """Return the layout of a choice if it gives the programs of every launch; else None."""
    tiles = {axis: size for axis, size in choice.items() if size is not None and size != _SPLIT}
    splits = frozenset(axis for axis, size in choice.items() if size == _SPLIT)
    if len(set(tiles.values())) < len(tiles):
        return None
    rest = None
    for config, programs in launches:
        own = math.prod(-(-sizes[size] // config.kwargs[axis]) for axis, size in tiles.items())
        own *= math.prod(config.kwargs[axis] for axis in splits)
        if programs % own or rest not in (None, programs // own):
            return None
        rest = programs // own
    free = [size for size in sizes if size not in tiles.values()]
    for count in range(len(free), -1, -1):  # sizes of 1 are programs at other shapes
        for some in itertools.combinations(free, count):
            if math.prod(sizes[name] for name in some) == rest:
                return Layout(tiles, frozenset(), frozenset(some), splits)
    return None


def _with_loops(
    layout: Layout, sizes: Iterable[str], axes: Iterable[str], named: Mapping[str, str]
) -> Layout:
    """Add the tiles of values that are not in the grid: those named, or of the one size left."""
    used = {*layout.tiles.values(), *layout.programs}
    free = [size for size in sizes if size not in used]
    tiles, loops = dict(layout.tiles), set(layout.loops)
    for axis in axes:
        if axis in tiles or axis in layout.splits:
            continue
        is_tile = bool(_TILE_WORDS & set(axis.lower().split("_")))
        size = named.get(axis) or (free[0] if is_tile and len(free) == 1 else None)
        if size is not None:
            tiles[axis] = size
            loops.add(axis)
    programs = layout.programs - set(tiles.values())
    return Layout(tiles, frozenset(loops), programs, layout.splits)


class ConfigColumns:
    """Configs of one kernel as columns of numbers."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self.configs = configs
        rows = [_values(config) for config in configs]
        names = sorted({name for row in rows for name in row})
        self._columns = {name: [row.get(name) for row in rows] for name in names}
        self.tiled = [name for name in names if name not in OPTION_AXES and self._is_tile(name)]
        self._tile_values = {n: np.array(self._columns[n], float) for n in self.tiled}
        self.axes: Matrix = np.array([_numbers(self._columns[name]) for name in names]).T
        self.warps: Matrix = np.log2(np.array(self._columns["num_warps"], float))

    def _is_tile(self, name: str) -> bool:
        values: list[Any] = self._columns[name]
        return all(type(v) is int and v > 0 for v in values) and max(values) > 1

    def quantities(
        self, layout: Layout, sizes: Mapping[str, int], sms: int, rows: NDArray[np.intp]
    ) -> Quantities:
        """Compute the quantities of some configs' launches at one shape."""
        count = len(rows)
        waste, tile, trips = np.zeros(count), np.zeros(count), np.zeros(count)
        programs = np.full(count, float(math.prod(sizes[name] for name in layout.programs)))
        for axis in layout.splits:
            programs = programs * self._tile_values[axis][rows]
        counts = []
        for axis, size in layout.tiles.items():
            block = self._tile_values[axis][rows]
            tiles = np.ceil(sizes[size] / block)
            waste += np.log(tiles * block / sizes[size])
            tile += np.log2(block)
            counts.append(np.minimum(np.log2(tiles), _MOST_TILES))
            if axis in layout.loops:
                trips += np.log2(tiles)
            else:
                programs = programs * tiles
        used = {*layout.tiles.values(), *layout.programs}
        tile += math.log2(math.prod(v for name, v in sizes.items() if name not in used))
        waves, each = programs / sms, tile - self.warps[rows]
        linear = _fill(waves, waste)
        base = waste + self._cost(waves, rows)
        if not layout.aligned(sizes).all():
            base += _SCALAR * each
        axes = self.axes[rows]
        regime = [np.clip(np.log2(waves), -3.0, 4.0), np.minimum(trips, 6.0)]
        relative = [*counts, each, *axes.T]
        return Quantities(base, _stack(linear), _stack(regime), _stack(relative), axes)

    def _cost(self, waves: Matrix, rows: NDArray[np.intp]) -> Matrix:
        """Return the log of the time that idle SMs, the last wave and few warps cost."""
        idle = np.log(np.maximum(1.0, 1.0 / waves))
        turns = np.maximum(np.ceil(waves), 1.0)
        tail = np.log(turns / np.maximum(waves, 1.0))
        few = np.maximum(0.0, _ENOUGH_WARPS - self.warps[rows] - np.log2(turns))
        return np.asarray(idle + _TAIL * tail + _FEW_WARPS * few)


def _fill(waves: Matrix, waste: Matrix) -> list[Matrix]:
    """Return padding, and tail and idle SMs for 1, 2 and 4 programs at once on an SM."""
    linear = [waste]
    for resident in (1, 2, 4):
        full = waves / resident
        tail = np.where(full > 1.0, np.log(np.ceil(full) / full), 0.0)
        linear += [tail, np.maximum(0.0, -np.log2(full))]
    return linear


_ENOUGH_WARPS: Final = 4.0
"""Doublings of warps on an SM that hide the latency of memory."""

_TAIL: Final = 0.2
"""Share of the last wave's idle SMs that costs time where nothing is timed (fitted)."""

# Log of time for each doubling (fitted).
_FEW_WARPS: Final = 0.08
_SCALAR: Final = 0.08  # of a warp's elements, where each is loaded alone

_MOST_TILES: Final = 4.0
"""Doublings of tiles of a size above which more of them change nothing."""


@dataclass(frozen=True)
class Quantities:
    """Quantities of launches, a row each.

    Attributes:
        base: log of the time that padding, idle SMs, tails, few warps and scalar loads cost.
        linear: padding, tails and idle SMs, for 1, 2 and 4 programs at once on an SM.
        regime: waves and trips, in doublings.
        relative: tiles of each size, elements of a warp, and the config's values.
        axes: the config's values.
    """

    base: Matrix
    linear: Matrix
    regime: Matrix
    relative: Matrix
    axes: Matrix

    @classmethod
    def joined(cls, parts: Sequence[Quantities]) -> Quantities:
        """Put the rows of several shapes together."""
        return cls(*(np.concatenate([vars(p)[n] for p in parts]) for n in vars(parts[0])))

    def at(self, rows: Any) -> Quantities:
        """Return some rows."""
        return Quantities(*(column[rows] for column in vars(self).values()))


def _stack(columns: Sequence[Matrix]) -> Matrix:
    return np.stack(columns, axis=1)


def _values(config: Config) -> dict[str, Any]:
    options = {name: getattr(config, name) for name in OPTION_AXES}
    return {**config.kwargs, **options, "maxnreg": config.maxnreg or _NO_CAP}


def _numbers(values: Sequence[Any]) -> list[float]:
    """Return numbers in doublings, and other values as far apart as four doublings."""
    if all(isinstance(v, int | float) and not isinstance(v, bool) and v > 0 for v in values):
        return [math.log2(v) for v in values]
    places = {text: place for place, text in enumerate(sorted(set(map(repr, values))))}
    return [4.0 * places[repr(value)] for value in values]
