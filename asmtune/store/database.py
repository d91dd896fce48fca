"""`Store`: tuned configs, the timings of every config measured, and predictions, in a database."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, insert, true

from asmtune.base.errors import StoreError
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.store import records, tables
from asmtune.store.lookup import (
    EarlierOutcomes,
    RecordSummary,
    StoredPrediction,
    StoreFinding,
    StoreLookup,
    StoreWarning,
    judge,
    merge_outcomes,
    unfinished_runs,
)
from asmtune.store.neighbours import KeyIndex
from asmtune.store.places import DamagedStoreError
from asmtune.store.records import Change, Reading
from asmtune.store.tables import LoadedRow, keys, matching, of_key, predictions, trials
from asmtune.store.transactions import Database

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Store(Database):
    """Tune records by key, and what is known of keys that have none; made with `Store.open`.

    Several processes and threads may use one at a time; each call is one transaction, or reads a
    batch in each. SQLite's write-ahead log needs shared memory: a file on a network file system
    must not be used from two hosts at once. Hosts share a store by PostgreSQL.

    Every method raises `StoreError` where the store cannot be read or written. Where it was opened
    with `on_corrupt="set_aside"`, damaged rows are deleted with a `StoreWarning`. Otherwise they
    stay, and reading a damaged record raises `StoreError` too.
    """

    _indexes: dict[str, KeyIndex] = field(default_factory=dict, repr=False)

    def find(self, key: TuneKey) -> TuneRecord | None:
        """Return the record of a key, valid or stale."""
        return next(iter(self._sound(records.WHOLE, self._load(key))), None)

    def lookup(self, key: TuneKey, expected: Provenance) -> StoreLookup:
        """Look up a key's record and judge it against how the key would be tuned now.

        A damaged record gives "corrupt", and raises nothing.
        """
        for loaded in self._load(key):
            if loaded.value is not None:
                return judge(loaded.value, expected, "store")
            self._set_aside(records.WHOLE, [loaded])
            return StoreLookup("corrupt", detail=loaded.problem)
        return StoreLookup("miss", detail=f"no record of {key.kernel} for this shape and device")

    def records(self, kernel: str | None = None, device: str | None = None) -> list[TuneRecord]:
        """List all records, or those of a kernel, a device or both; by kernel and device."""
        return list(self.stream(kernel, device))

    def stream(self, kernel: str | None = None, device: str | None = None) -> Iterator[TuneRecord]:
        """Yield what `records` lists, of which a batch is in memory."""
        return self._select(records.WHOLE, matching(keys, kernel, device))

    def heads(self, kernel: str | None = None, device: str | None = None) -> list[TuneRecord]:
        """List records as `records` does, without timings and failures."""
        return list(self._select(records.HEADS, matching(keys, kernel, device)))

    def summaries(
        self, kernel: str | None = None, device: str | None = None
    ) -> Iterator[RecordSummary]:
        """Yield what is in the store as `stream` does, with counts in place of the timings."""
        return self._select(records.SUMMARIES, matching(keys, kernel, device))

    def by_digest(self, prefix: str) -> list[TuneRecord]:
        """List the records whose key digest starts with some hex digits."""
        condition = keys.c.digest.startswith(prefix, autoescape=True)
        return list(self._select(records.WHOLE, condition))

    def near(self, key: TuneKey) -> list[TuneRecord]:
        """List the records nearest to a key, some of each device, in no order; without samples."""
        reading = records.UNSAMPLED
        index = self._indexes.get(key.kernel, KeyIndex())

        def work(connection: Connection) -> Change | Sequence[Any]:
            nonlocal index
            change = records.behind(connection, key.kernel, index)
            if change.rows:
                return change
            index = change.known
            return reading.fetch(connection, keys.c.id.in_(index.nearest(key)))

        while isinstance(found := self.transact(work), Change):
            index = found.known.having(found.rows)
        self._indexes[key.kernel] = index
        return self._sound(reading, map(reading.parse, found))

    def _load(self, key: TuneKey) -> list[LoadedRow[TuneRecord]]:
        fetched = self.transact(partial(records.fetch, condition=of_key(keys, key)))
        return list(map(records.parse, fetched))

    def _select(self, reading: Reading[_T], condition: ColumnElement[bool]) -> Iterator[_T]:
        for batch in self._batches(reading, condition, self.transact):
            yield from self._sound(reading, batch)  # nothing of a batch with a damaged record

    @staticmethod
    def _batches(
        reading: Reading[_T], condition: ColumnElement[bool], run: Callable[..., Any]
    ) -> Iterator[list[LoadedRow[_T]]]:
        """Read rows in batches, each in a transaction of its own, and parse them between those."""
        found = run(partial(records.handles, table=reading.table, condition=condition))
        for start in range(0, len(found), reading.most):
            batch = found[start : start + reading.most]
            yield list(map(reading.parse, run(partial(reading.read, batch))))

    def _sound(self, reading: Reading[_T], read: Iterable[LoadedRow[_T]]) -> list[_T]:
        """Return the values of rows; set damaged ones aside, or raise where one is a record."""
        rows_read = list(read)
        damaged = [row for row in rows_read if row.value is None]
        if damaged and reading.table is keys and not self.sets_aside:
            first = damaged[0]
            raise StoreError(
                f"store {self.place}: record {first.place} is damaged ({first.problem}); `asmtune "
                f"cache verify` lists such, `asmtune cache clear --kernel {first.row.kernel!a} "
                "--yes` deletes the kernel's records"
            )
        self._set_aside(reading, damaged)
        return [row.value for row in rows_read if row.value is not None]

    def _set_aside(self, reading: Reading[_T], damaged: Sequence[LoadedRow[_T]]) -> None:
        if not damaged or not self.sets_aside:
            return
        condition = reading.own.in_([row.id for row in damaged])
        self.transact(lambda c: tables.delete_rows(c, reading.table, condition), writes=True)
        warnings.warn(
            f"store {self.place}: {len(damaged)} damaged rows of {reading.table.name}, such as "
            f"{damaged[0].place} ({damaged[0].problem}), have been deleted; what they held will be "
            "measured again",
            StoreWarning,
            stacklevel=3,
        )

    def save(self, record: TuneRecord) -> None:
        """Save a record in place of an older one of the same key, all of it or nothing.

        The outcomes of the key's unfinished runs and its prediction are deleted.

        Raises:
            InputError: a value cannot be stored, such as a NaN time or a config value that is
                not a number, string or boolean; the message names it.
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

        Raises:
            InputError: as `save`.
        """
        for batch in records.prepared_batches(saved, checked=checked):
            self.transact(partial(records.put, batch=batch), writes=True)
            yield len(batch)

    def save_first(self, record: TuneRecord, replaced: int | None = None) -> TuneRecord:
        """Save a record unless the key has a valid one; return the one that is stored then.

        So all processes that tuned a key at the same time go on with the same config.

        Args:
            record: record to save.
            replaced: id of a row of `keys` to replace although it is valid.

        Raises:
            InputError: as `save`.
        """
        rows_of = [records.prepare(record)]

        def write(connection: Connection) -> TuneRecord:
            stored = records.valid(connection, record.key, record.provenance)
            if stored is None or stored.value is None or stored.id == replaced:
                records.put(connection, rows_of)
                return record
            for table in (trials, predictions):
                tables.delete_rows(connection, table, of_key(table, record.key))
            return stored.value

        return self.transact(write, writes=True)

    def clear(self, kernel: str | None = None, device: str | None = None) -> int:
        """Delete all records, or those of a kernel, a device or both, and count them.

        Outcomes of unfinished runs and predictions go with them.
        """
        for table in (trials, predictions):
            condition = matching(table, kernel, device)
            self.transact(
                partial(tables.delete_rows, table=table, condition=condition), writes=True
            )
        count, some = 0, partial(tables.delete_some, condition=matching(keys, kernel, device))
        while deleted := self.transact(some, writes=True):
            count += deleted
        return count

    def verify(self) -> list[StoreFinding]:
        """List everything that is wrong with the store; delete and set aside nothing.

        Raises:
            StoreError: the store cannot be read for a reason other than damage.
        """
        readings: tuple[Reading[Any], ...] = (
            records.WHOLE,
            records.PREDICTIONS,
            records.TRIALS,
        )
        try:
            found = self.once(records.find_file_damage)
            for reading in readings:
                read = chain.from_iterable(self._batches(reading, true(), self.once))
                found += filter(None, map(records.finding, read))
        except DamagedStoreError as error:
            return [StoreFinding("file", str(error))]
        return found

    def save_outcomes(
        self,
        key: TuneKey,
        provenance: Provenance,
        measurements: Iterable[Measurement] = (),
        failures: Iterable[tuple[Config, Failure]] = (),
    ) -> None:
        """Save outcomes of a run that has not ended; committed when this returns.

        Raises:
            InputError: as `save`.
        """
        if new := tables.trial_rows(key, provenance, measurements, failures):
            self.transact(lambda c: c.execute(insert(trials), new).close(), writes=True)

    def earlier_outcomes(self, key: TuneKey, expected: Provenance) -> EarlierOutcomes:
        """Return the outcomes of earlier runs of a key that are valid for `expected`.

        They come from runs that have not ended, with the same source and Triton
        (major.minor), and from the key's record where only its space differs. The newest
        outcome of a config counts. A damaged row is left out.
        """
        outcomes = list(self._select(records.TRIALS, of_key(trials, key)))
        stored = (row.value for row in self._load(key) if row.value is not None)
        return merge_outcomes(stored, outcomes, expected)

    def unfinished(
        self, kernel: str | None = None, device: str | None = None
    ) -> list[RecordSummary]:
        """List runs that have not ended or were cut off, by kernel and device."""
        return unfinished_runs(self._select(records.TRIALS, matching(trials, kernel, device)))

    def save_prediction(self, prediction: StoredPrediction) -> None:
        """Save a prediction, unless the key has a valid record.

        Raises:
            InputError: as `save`.
        """
        row = tables.prediction_row(prediction)

        def write(connection: Connection) -> None:
            if records.valid(connection, prediction.key, prediction.provenance) is None:
                tables.delete_rows(connection, predictions, of_key(predictions, prediction.key))
                connection.execute(insert(predictions).values(row))

        self.transact(write, writes=True)

    def find_prediction(self, key: TuneKey, expected: Provenance) -> StoredPrediction | None:
        """Return the valid prediction of a key; a damaged row counts as none."""
        stored = self._select(records.PREDICTIONS, of_key(predictions, key))
        return next((p for p in stored if p.holds(expected)), None)

    def predictions(
        self, kernel: str | None = None, device: str | None = None
    ) -> Iterator[StoredPrediction]:
        """Yield the predictions of keys not tuned since, by kernel and device."""
        return self._select(records.PREDICTIONS, matching(predictions, kernel, device))
