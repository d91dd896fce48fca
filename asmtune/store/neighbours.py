"""Records that may serve another key: other shapes of the device, and other devices, in order.

`neighbours` sorts the records. `KeyIndex` holds the keys of a kernel's records as numbers, so that
the nearest of many are known before a record is read. Each row of `keys` is read once: an id is
never used again in one store.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical
from asmtune.base.json_codec import json_of
from asmtune.core.hardware.model import Target, apart
from asmtune.core.hardware.shipped import match_device
from asmtune.core.records.tuned import TuneKey, TuneRecord

Place = tuple[int, tuple[float, ...], float]

_SAME_CODE, _HERE, _ELSEWHERE = range(3)


@dataclass(frozen=True)
class Neighbour:
    """A record of a key's kernel and dtypes, of another shape or another device.

    Attributes:
        record: the record.
        place: what neighbours are sorted by.
        is_here: whether it is of this device.
    """

    record: TuneRecord
    place: Place
    is_here: bool = True

    @property
    def same_code(self) -> bool:
        """Return whether it is of the same key, on another device of the same architecture."""
        return self.place[0] == _SAME_CODE


def neighbours(
    records: Collection[TuneRecord], key: TuneKey, here: Target | None
) -> list[Neighbour]:
    """Sort the records that may serve a key, nearest first.

    First the same key on a device of the same architecture, then other shapes of this device and
    the key itself, whose record is stale, then what other devices have. Devices are sorted by
    architecture, SMs and bandwidth (`apart`); of one device the nearest shape comes first. Between
    an H100 and an H200 the same key's config keeps 0.98 of the best speed, another shape's of one
    device 0.5 to 0.8.

    Args:
        records: of any keys; those of another kernel or dtypes, and of a device that nothing is
            known of are left out.
        key: the key that they are to serve.
        here: the target of the key's device; without it other devices are left out.
    """
    named = {record.key.device for record in records}
    targets = {device: match_device(device) for device in named - {key.device} if here is not None}
    listed = [
        neighbour
        for record in records
        if (neighbour := _neighbour(record, key, here, targets)) is not None
    ]
    return sorted(listed, key=lambda one: one.place)


def _neighbour(
    record: TuneRecord,
    key: TuneKey,
    here: Target | None,
    targets: Mapping[str, Target | None],
) -> Neighbour | None:
    own = record.key
    if (own.kernel, dict(own.dtypes)) != (key.kernel, dict(key.dtypes)):
        return None
    shape_away = distance(own.shape, key.shape)
    if own.device == key.device:
        return Neighbour(record, (_HERE, (), shape_away))
    there = targets.get(own.device)
    away = None if here is None or there is None else apart(there, here)
    if away is None or here is None or there is None:
        return None
    same_code = there.arch == here.arch and dict(own.shape) == dict(key.shape)
    rank = _SAME_CODE if same_code else _ELSEWHERE
    return Neighbour(record, (rank, away, shape_away), is_here=False)


def distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return the distance of two shapes: the sum of |log2| of the ratios of their sizes.

    Values that are no numbers above 0 are one step apart where they differ.
    """
    pairs = ((_at(one, name), _at(other, name)) for name in one.keys() | other.keys())
    steps = (abs(_log(a) - _log(b)) for a, b in pairs if _code(a) != _code(b))
    return sum(1.0 if math.isnan(step) else step for step in steps)


NEAREST: Final = 6
"""Records of each device that a search takes seeds from, and fastest timings of each: as many as it
has room for."""

_Numbers = NDArray[np.int64]
_Sizes = tuple[NDArray[np.float64], _Numbers]
_ABSENT: Final = object()


def _none() -> _Numbers:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class KeyIndex:
    """Keys as numbers; never changed, so that threads need no lock.

    Attributes:
        ids: ids of rows of `keys`.
        shapes: by the name of a value in a shape, its logarithm to the base 2 (NaN of what is no
            size) and its hash.
        dtypes, devices: hashes of dtypes and device.
    """

    ids: _Numbers = field(default_factory=_none)
    shapes: Mapping[str, _Sizes] = field(default_factory=dict)
    dtypes: _Numbers = field(default_factory=_none)
    devices: _Numbers = field(default_factory=_none)

    def having(self, rows: Sequence[Any]) -> KeyIndex:
        """Return the index with more rows of `keys`, as `tables.behind` gives them."""
        shapes = [_shape(row.shape) for row in rows]
        names = self.shapes.keys() | {name for shape in shapes for name in shape}
        return KeyIndex(
            _joined(self.ids, [row.id for row in rows]),
            {name: self._joined_sizes(name, [_at(one, name) for one in shapes]) for name in names},
            _joined(self.dtypes, [hash(row.dtypes) for row in rows]),
            _joined(self.devices, [hash(row.device) for row in rows]),
        )

    def _joined_sizes(self, name: str, values: list[Any]) -> _Sizes:
        old, logs = self._sizes(name), np.array([_log(value) for value in values], np.float64)
        return np.concatenate([old[0], logs]), _joined(old[1], [_code(v) for v in values])

    def _sizes(self, name: str) -> _Sizes:
        count = len(self.ids)
        absent = np.full(count, np.nan), np.full(count, _code(_ABSENT))
        return self.shapes.get(name, absent)

    def nearest(self, key: TuneKey) -> list[int]:
        """Return the ids of the `NEAREST` keys of each device that have the dtypes of a key."""
        away = self._away(key.shape)
        usable = self.dtypes == hash(canonical(dict(key.dtypes)))
        chosen: list[int] = []
        for device in np.unique(self.devices[usable]):
            own = np.flatnonzero(usable & (self.devices == device))
            order = np.argsort(away[own], kind="stable")[:NEAREST]
            chosen += self.ids[own[order]].tolist()
        return chosen

    def _away(self, shape: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the distance of each key's shape; 1 for each value that is no size and differs."""
        total = np.zeros(len(self.ids))
        for name in self.shapes.keys() | shape.keys():
            value, (logs, codes) = _at(shape, name), self._sizes(name)
            apart = np.abs(logs - _log(value))
            apart[np.isnan(apart)] = 1.0
            total += np.where(codes == _code(value), 0.0, apart)
        return total


def _shape(text: Any) -> dict[str, Any]:
    """Read a shape; a damaged one has no values, and fails when the whole row is read."""
    try:
        shape = json_of(text, "shape")
    except InputError:
        return {}
    plain = isinstance(shape, dict) and not any(isinstance(v, list | dict) for v in shape.values())
    return shape if plain else {}


def _at(shape: Mapping[str, Any], name: str) -> Any:
    return shape.get(name, _ABSENT)


def _log(value: Any) -> float:
    size = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return math.log2(value) if size else math.nan


def _code(value: Any) -> int:
    return hash((type(value).__name__, value))


def _joined(numbers: _Numbers, more: list[int]) -> _Numbers:
    return np.concatenate([numbers, np.array(more, np.int64)])
