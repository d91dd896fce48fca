"""`Store`: tuned configs, the timings of every config measured, and predictions, in a database."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, delete, insert, select, true

from asmtune.base.errors import StoreError
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.store import codec, tables
from asmtune.store.lookup import (
    RecordSummary,
    StoredPrediction,
    StoreFinding,
    StoreLookup,
    StoreWarning,
    judge,
    preferred,
)
from asmtune.store.neighbours import KeyIndex
from asmtune.store.places import DamagedStoreError
from asmtune.store.tables import (
    Change,
    LoadedRow,
    Reading,
    keys,
    matching,
    of_key,
    predictions,
)
from asmtune.store.transactions import Database, unlimited

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Store(Database):
    """Tune records by key, and what is known of keys that have none; made with `Store.open`.

    Several processes and threads may use one at a time; each call is one transaction, or reads a
    batch in each. SQLite's write-ahead log needs shared memory: a file on a network file system
    must not be used from two hosts at once. Hosts share a store by PostgreSQL.

    Every method raises `StoreError` where the store cannot be read or written. Where it was opened
    with `on_corrupt="set_aside"`, damaged rows are deleted with a `StoreWarning`. Otherwise they
    stay, and reading a damaged record raises `StoreError` too. A value that cannot be stored, such
    as a NaN time or a config value that is not a number, string or boolean, raises `InputError`
    that names it.
    """

    _indexes: dict[str, KeyIndex] = field(default_factory=dict, repr=False)

    def find(self, key: TuneKey) -> TuneRecord | None:
        """Return the record of a key, valid or stale; of several the one saved last."""
        return next(reversed(self._sound(keys, self._load(key))), None)

    def lookup(self, key: TuneKey, expected: Provenance) -> StoreLookup:
        """Look up a key's record and judge it against how the key would be tuned now.

        A damaged record gives "corrupt", and raises nothing.
        """
        loaded = self._load(key)
        damaged = [one for one in loaded if one.value is None]
        self._set_aside(keys, damaged)
        sound = (judge(one.value, expected, "store") for one in loaded if one.value is not None)
        if (answer := preferred(sound)) is not None:
            return answer
        if damaged:
            return StoreLookup("corrupt", detail=damaged[0].problem)
        return StoreLookup("miss", detail=f"no record of {key.kernel} for this shape and device")

    def records(self, kernel: str | None = None, device: str | None = None) -> list[TuneRecord]:
        """List all records, or those of a kernel, a device or both; by kernel and device."""
        return list(self.stream(kernel, device))

    def stream(self, kernel: str | None = None, device: str | None = None) -> Iterator[TuneRecord]:
        """Yield what `records` lists, of which a batch is in memory."""
        return self._select(tables.WHOLE, keys, matching(keys, kernel, device))

    def devices(self, kernel: str) -> list[str]:
        """List the devices that a kernel has records of."""
        query = select(keys.c.device).where(keys.c.kernel == kernel).distinct()
        return self.transact(lambda c: [*c.execute(query).scalars()])

    def summaries(
        self, kernel: str | None = None, device: str | None = None
    ) -> Iterator[RecordSummary]:
        """Yield what is in the store as `stream` does, with counts in place of the timings."""
        return self._select(tables.SUMMARIES, keys, matching(keys, kernel, device))

    def by_digest(self, prefix: str) -> list[TuneRecord]:
        """List the records whose key digest starts with some hex digits."""
        condition = keys.c.digest.startswith(prefix, autoescape=True)
        return list(self._select(tables.WHOLE, keys, condition))

    def near(self, key: TuneKey) -> list[TuneRecord]:
        """List the records nearest to a key, some of each device, in no order.

        Each has its `NEAREST` fastest timings, without samples, and no failures.
        """
        reading = tables.FASTEST
        index = self._indexes.get(key.kernel, KeyIndex())

        def work(connection: Connection) -> Change | Sequence[Any]:
            nonlocal index
            change = tables.behind(connection, key.kernel, index)
            if change.rows:
                return change
            index = change.known
            return reading.fetch(connection, keys, keys.c.id.in_(index.nearest(key)))

        while isinstance(found := self.transact(work), Change):
            index = found.known.having(found.rows)
        self._indexes[key.kernel] = index
        return self._sound(keys, map(reading.parse, found))

    def _load(self, key: TuneKey) -> list[LoadedRow[TuneRecord]]:
        condition = of_key(keys, key)
        fetched = self.transact(lambda c: tables.WHOLE.fetch(c, keys, condition))
        return list(map(tables.WHOLE.parse, sorted(fetched, key=lambda row: int(row.id))))

    def _select(
        self, reading: Reading[_T], table: Table, condition: ColumnElement[bool]
    ) -> Iterator[_T]:
        for batch in self._batches(reading, table, condition, self.transact):
            yield from self._sound(table, batch)  # nothing of a batch with a damaged record

    @staticmethod
    def _batches(
        reading: Reading[_T],
        table: Table,
        condition: ColumnElement[bool],
        run: Callable[..., Any],
    ) -> Iterator[list[LoadedRow[_T]]]:
        """Read rows in batches, each in a transaction of its own, and parse them between those."""
        found = run(partial(tables.handles, table=table, condition=condition))
        for start in range(0, len(found), reading.most):
            batch = found[start : start + reading.most]
            rows = run(partial(tables.fetch_again, reading=reading, table=table, batch=batch))
            yield list(map(reading.parse, rows))

    def _sound(self, table: Table, read: Iterable[LoadedRow[_T]]) -> list[_T]:
        """Return the values of rows; set damaged ones aside, or raise where one is a record."""
        rows = list(read)
        damaged = [row for row in rows if row.value is None]
        if damaged and table is keys and not self.sets_aside:
            first = damaged[0]
            raise StoreError(
                f"store {self.place}: record {first.place} is damaged ({first.problem}); `asmtune "
                f"cache verify` lists such, `asmtune cache clear --kernel {first.row.kernel!a} "
                "--yes` deletes the kernel's records"
            )
        self._set_aside(table, damaged)
        return [row.value for row in rows if row.value is not None]

    def _set_aside(self, table: Table, damaged: Sequence[LoadedRow[_T]]) -> None:
        if not damaged or not self.sets_aside:
            return
        condition = table.c.id.in_([row.row.id for row in damaged])
        self.transact(lambda c: c.execute(delete(table).where(condition)).close(), writes=True)
        warnings.warn(
            f"store {self.place}: {len(damaged)} damaged rows of {table.name}, such as "
            f"{damaged[0].place} ({damaged[0].problem}), have been deleted; what they held will be "
            "measured again",
            StoreWarning,
            stacklevel=3,
        )

    def save(self, record: TuneRecord) -> None:
        """Save a record in place of an older one of the same key and Triton, whole or not at all.

        The key's prediction is deleted.
        """
        self.save_all([record])

    def save_all(self, saved: Iterable[TuneRecord]) -> int:
        """Save records as `save` does, in batches, each all or nothing; return how many."""
        return sum(self.save_batches(saved))

    def save_batches(self, saved: Iterable[TuneRecord], *, checked: bool = False) -> Iterator[int]:
        """Save records in batches; yield the number of each batch when all of it is saved.

        Args:
            saved: records to save.
            checked: whether they come from JSON that was checked.
        """
        left, prepared = iter(saved), partial(codec.row_of, checked=checked)
        while batch := [*map(prepared, islice(left, tables.BATCH))]:
            self.transact(partial(tables.put, batch=batch), writes=True)
            yield len(batch)

    def save_first(self, record: TuneRecord, replaced: int | None = None) -> TuneRecord:
        """Save a record unless the key has a valid one; return the one that is stored then.

        So all processes that tuned a key at the same time go on with the same config.

        Args:
            record: record to save.
            replaced: id of a row of `keys` to replace although it is valid.
        """
        row = codec.row_of(record)

        def write(connection: Connection) -> TuneRecord:
            stored = tables.valid(connection, record.key, record.provenance)
            if stored is None or stored.value is None or stored.row.id == replaced:
                tables.put(connection, [row])
                return record
            connection.execute(delete(predictions).where(of_key(predictions, record.key)))
            return stored.value

        return self.transact(write, writes=True)

    def clear(self, kernel: str | None = None, device: str | None = None) -> int:
        """Delete all records, or those of a kernel, a device or both, and count them.

        Predictions go with them.
        """
        count = 0
        for table in tables.OF_RECORDS:
            condition = matching(table, kernel, device)
            some = partial(tables.delete_some, table=table, condition=condition)
            while deleted := self.transact(some, writes=True):
                count += deleted * (table is keys)
        return count

    def verify(self) -> list[StoreFinding]:
        """List everything that is wrong with the store; delete and set aside nothing.

        Raises:
            StoreError: the store cannot be read for a reason other than damage.
        """
        try:
            found = self.once(_file_damage)
            for table in tables.OF_RECORDS:
                batches = self._batches(tables.WHOLE, table, true(), self.once)
                for row in chain.from_iterable(batches):
                    if row.value is None:
                        found.append(StoreFinding(row.place, row.problem))
                    elif table is keys and not codec.winner_is_timed(row.value):
                        problem = "its winner is not among its measurements"
                        found.append(StoreFinding(row.place, problem))
        except DamagedStoreError as error:
            return [StoreFinding("file", str(error))]
        return found

    def save_prediction(self, prediction: StoredPrediction) -> None:
        """Save a prediction, unless the key has a valid record."""
        row = codec.row_of(prediction.as_record)

        def write(connection: Connection) -> None:
            if tables.valid(connection, prediction.key, prediction.provenance) is None:
                connection.execute(delete(predictions).where(of_key(predictions, prediction.key)))
                connection.execute(insert(predictions), row)

        self.transact(write, writes=True)

    def find_prediction(self, key: TuneKey, expected: Provenance) -> StoredPrediction | None:
        """Return the valid prediction of a key; a damaged row counts as none."""
        stored = self._select(tables.WHOLE, predictions, of_key(predictions, key))
        return next((p for p in map(StoredPrediction.of, stored) if p.holds(expected)), None)

    def predictions(
        self, kernel: str | None = None, device: str | None = None
    ) -> Iterator[StoredPrediction]:
        """Yield the predictions of keys not tuned since, by kernel and device."""
        condition = matching(predictions, kernel, device)
        return map(StoredPrediction.of, self._select(tables.WHOLE, predictions, condition))


def _file_damage(connection: Connection) -> list[StoreFinding]:
    """List what is wrong with an SQLite file as SQLite sees it."""
    if connection.dialect.name != "sqlite":
        return []
    unlimited(connection)
    texts = connection.exec_driver_sql("PRAGMA integrity_check").scalars()
    problems = [" ".join(str(text).split()) for text in texts if text != "ok"]
    return [StoreFinding("file", problem) for problem in problems]
