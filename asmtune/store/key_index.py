"""The keys of a kernel's records, in memory, as numbers: which are nearest to another key.

The rows of `keys` alone are read, and each once: an id is never used again in one store. Another
process may add and delete rows, so that number and sum of their ids are compared first, or start
the store afresh, so that its name is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, func, select

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical
from asmtune.base.json_codec import json_of
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.store.lookup import minor_version
from asmtune.store.tables import keys, store_name

NEAREST: Final = 16
"""Records of each device that may serve another key. Further ones were hardly ever the source of a
config, and each costs some 0.1 ms without its timings."""

READ_AT_ONCE: Final = 1000

_NAMES: Final = ("id", "shape", "dtypes", "device", "source", "triton")

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
        dtypes, devices, made: hashes of dtypes, device, and source and Triton's version.
        store: `tables.store_name`, whose ids they are.
    """

    ids: _Numbers = field(default_factory=_none)
    shapes: Mapping[str, _Sizes] = field(default_factory=dict)
    dtypes: _Numbers = field(default_factory=_none)
    devices: _Numbers = field(default_factory=_none)
    made: _Numbers = field(default_factory=_none)
    store: str | None = None

    def having(self, rows: Sequence[Row[Any]]) -> KeyIndex:
        """Return the index with more rows, as `behind` gives them."""
        shapes = [_shape(row.shape) for row in rows]
        names = self.shapes.keys() | {name for shape in shapes for name in shape}
        return KeyIndex(
            _joined(self.ids, [row.id for row in rows]),
            {name: self._joined_sizes(name, [_at(one, name) for one in shapes]) for name in names},
            _joined(self.dtypes, [hash(row.dtypes) for row in rows]),
            _joined(self.devices, [hash(row.device) for row in rows]),
            _joined(self.made, [_made(row.source, row.triton) for row in rows]),
            self.store,
        )

    def _joined_sizes(self, name: str, values: list[Any]) -> _Sizes:
        old, logs = self._sizes(name), np.array([_log(value) for value in values], np.float64)
        return np.concatenate([old[0], logs]), _joined(old[1], [_code(v) for v in values])

    def _sizes(self, name: str) -> _Sizes:
        count = len(self.ids)
        absent = np.full(count, np.nan), np.full(count, _code(_ABSENT))
        return self.shapes.get(name, absent)

    def only(self, ids: _Numbers) -> KeyIndex:
        """Return the index without rows that are no longer there."""
        kept = np.isin(self.ids, ids)
        shapes = {name: (log[kept], code[kept]) for name, (log, code) in self.shapes.items()}
        rest = (self.dtypes[kept], self.devices[kept], self.made[kept], self.store)
        return KeyIndex(self.ids[kept], shapes, *rest)

    def nearest(self, key: TuneKey, now: Provenance | None = None) -> list[int]:
        """Return the ids of the `NEAREST` keys of each device that have the dtypes of a key.

        Args:
            key: the key, whose kernel is that of the index.
            now: how the key would be tuned; where given, only records of this source and Triton
                count, and only shapes that compare: those that differ in sizes alone.
        """
        away = self._away(key.shape, math.inf if now is not None else 1.0)
        usable = (self.dtypes == hash(canonical(dict(key.dtypes)))) & np.isfinite(away)
        if now is not None:
            usable &= self.made == _made(now.source, now.triton)
        chosen: list[int] = []
        for device in np.unique(self.devices[usable]):
            own = np.flatnonzero(usable & (self.devices == device))
            order = np.argsort(away[own], kind="stable")[:NEAREST]
            chosen += self.ids[own[order]].tolist()
        return chosen

    def _away(self, shape: Mapping[str, Any], other: float) -> NDArray[np.float64]:
        """Return the distance of each key's shape; `other` where two values are no sizes."""
        total = np.zeros(len(self.ids))
        for name in self.shapes.keys() | shape.keys():
            value, (logs, codes) = _at(shape, name), self._sizes(name)
            apart = np.abs(logs - _log(value))
            apart[np.isnan(apart)] = other
            total += np.where(codes == _code(value), 0.0, apart)
        return total


class Change(NamedTuple):
    """An index without what is gone, and rows that it lacks, at most `READ_AT_ONCE`."""

    known: KeyIndex
    rows: Sequence[Row[Any]]


def behind(connection: Connection, kernel: str, index: KeyIndex) -> Change:
    """Read what an index lacks of a kernel's keys: no rows where it has them all."""
    if (store := store_name(connection)) != index.store:
        index = KeyIndex(store=store)
    own, read = keys.c.kernel == kernel, select(*(keys.c[name] for name in _NAMES))
    sums = select(func.count(), func.coalesce(func.sum(keys.c.id), 0)).where(own)
    if tuple(map(int, connection.execute(sums).one())) == (len(index.ids), index.ids.sum()):
        return Change(index, ())
    newest = int(index.ids.max(initial=0))
    newer = read.where(own, keys.c.id > newest).order_by(keys.c.id).limit(READ_AT_ONCE)
    if rows := connection.execute(newer).all():
        return Change(index, rows)
    # Deleted, or added by a transaction of a server that ended after a later one.
    present = np.array(connection.execute(select(keys.c.id).where(own)).scalars().all(), np.int64)
    late = np.setdiff1d(present, index.ids)[:READ_AT_ONCE].tolist()
    return Change(index.only(present), connection.execute(read.where(keys.c.id.in_(late))).all())


def _shape(text: Any) -> dict[str, Any]:
    """Read a shape; a damaged one has no values, and the row tells of it when it is read whole."""
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


def _made(source: Any, triton: Any) -> int:
    return hash((source, minor_version(str(triton))))


def _joined(numbers: _Numbers, more: list[int]) -> _Numbers:
    return np.concatenate([numbers, np.array(more, np.int64)])
