"""`Store`: tuned configs, the timings of every config measured, and predictions, in a database."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import ColumnElement, Connection, true

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.store import records, rows, tables, transactions
from asmtune.store.faults import DamagedStoreError
from asmtune.store.lookup import (
    EarlierOutcomes,
    StoredExamples,
    StoredPrediction,
    StoredTrial,
    StoreFinding,
    StoreWarning,
    UnfinishedRun,
    differences,
    merge_outcomes,
    unfinished_runs,
)
from asmtune.store.record_reader import RecordReader, of_key
from asmtune.store.rows import LoadedRow
from asmtune.store.transactions import Database, OnCorrupt, OpenMode

_T = TypeVar("_T")


class Store(RecordReader):
    """Tune records by key, and what is known of keys that have none; made with `Store.open`.

    Several processes and threads may use one at a time; each call is one transaction. SQLite's
    write-ahead log needs shared memory: a file on a network file system must not be used from
    two hosts at once. Hosts share a store by PostgreSQL.
    """

    @classmethod
    def open(
        cls,
        where: str | Path,
        *,
        on_corrupt: OnCorrupt = "error",
        patience_s: float = transactions.BUSY_SECONDS,
    ) -> Self:
        """Open the store in a file, or in the database that a URL names; make it where missing.

        Args:
            where: path of an SQLite file, or a URL such as `postgresql://user@host/name`.
            on_corrupt: see `OpenMode`.
            patience_s: see `OpenMode`.

        Raises:
            InputError: the URL names no database driver that is installed.
            StoreError: the store cannot be read or made, or a newer asmtune has written it.
        """
        database = Database.at(where, OpenMode(on_corrupt=on_corrupt, patience_s=patience_s))
        is_file = database.path is not None

        def ready(connection: Connection) -> bool:
            return tables.are_present(connection, database.place, is_file=is_file)

        def make(connection: Connection) -> None:
            if not ready(connection):  # another process may have been faster
                tables.create(connection)

        if not database.transact(ready):
            database.transact(make, writes=True)
        return cls(database)

    def close(self) -> None:
        """Disconnect from the database; a file is closed after each call anyway."""
        self._database.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save(self, record: TuneRecord) -> None:
        """Save a record in place of an older one of the same key, all of it or nothing.

        The outcomes of the key's unfinished runs and its prediction are deleted.

        Raises:
            InputError: a value cannot be stored, such as a NaN time or a config value that is
                not a number, string or boolean; the message names it.
            StoreError: the store cannot be written.
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
            StoreError: as `save`.
        """
        left, prepared = iter(saved), partial(records.prepare, checked=checked)
        while batch := [*map(prepared, islice(left, records.BATCH))]:
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
            StoreError: as `save`.
        """
        rows_of = [records.prepare(record)]

        def write(connection: Connection) -> TuneRecord:
            stored = records.valid(connection, record.key, record.provenance)
            if stored is not None and stored.value is not None and stored.id != replaced:
                _forget(connection, record.key)
                return stored.value
            records.put(connection, rows_of)
            return record

        return self.transact(write, writes=True)

    def clear(self, kernel: str | None = None, device: str | None = None) -> int:
        """Delete all records, or those of a kernel, a device or both, and count them.

        Outcomes of unfinished runs, predictions and training rows go with them.

        Raises:
            StoreError: the store cannot be written.
        """
        for table in (tables.trials, tables.predictions, tables.examples):
            condition = rows.matching(table, kernel, device)
            self.transact(partial(rows.delete_rows, table=table, condition=condition), writes=True)
        keys, count = tables.keys, 0
        some = partial(rows.delete_some, table=keys, condition=rows.matching(keys, kernel, device))
        while deleted := self.transact(some, writes=True):
            count += deleted
        return count

    def verify(self) -> list[StoreFinding]:
        """List everything that is wrong with the store; delete and set aside nothing.

        Raises:
            StoreError: the store cannot be read for a reason other than damage.
        """
        once = self._database.once
        try:
            file = once(records.find_file_damage)
            batches = self._batches(records.WHOLE, true(), once)
            found = [*filter(None, map(records.finding, chain.from_iterable(batches)))]
            return [*file, *found, *once(partial(records.find_damage, is_sound=not file))]
        except DamagedStoreError as error:
            return [StoreFinding("file", str(error))]

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
            StoreError: as `save`.
        """
        new = rows.trial_rows(key, provenance, measurements, failures)
        if new:
            self.transact(lambda connection: rows.put_trials(connection, new), writes=True)

    def earlier_outcomes(self, key: TuneKey, expected: Provenance) -> EarlierOutcomes:
        """Return the outcomes of earlier runs of a key that are valid for `expected`.

        They come from runs that have not ended, with the same source and Triton
        (major.minor), and from the key's record where only its space differs. The newest
        outcome of a config counts. A damaged row is left out; it is deleted, with one
        `StoreWarning`, where the store was opened with `on_corrupt="set_aside"`.

        Raises:
            StoreError: the store cannot be read.
        """
        loaded = list(self._trials(of_key(tables.trials, key)))
        self._set_trials_aside([row for row in loaded if row.value is None])
        return merge_outcomes(
            (row.value for row in self._load(key) if row.value is not None),
            (row.value for row in loaded if row.value is not None),
            expected,
        )

    def unfinished(
        self, kernel: str | None = None, device: str | None = None
    ) -> list[UnfinishedRun]:
        """List runs that have not ended or were cut off, by kernel and device.

        Raises:
            StoreError: the store cannot be read.
        """
        condition = rows.matching(tables.trials, kernel, device)
        return unfinished_runs(r.value for r in self._trials(condition) if r.value is not None)

    def _trials(self, condition: ColumnElement[bool]) -> Iterator[LoadedRow[StoredTrial]]:
        after = 0
        while found := self.transact(partial(rows.fetch_trials, condition=condition, after=after)):
            yield from map(rows.parse_trial, found)
            after = found[-1].id

    def save_prediction(self, prediction: StoredPrediction) -> None:
        """Save a prediction, unless the key has a valid record.

        Raises:
            InputError: as `save`.
            StoreError: as `save`.
        """
        row = rows.prediction_row(prediction)

        def write(connection: Connection) -> None:
            if records.valid(connection, prediction.key, prediction.provenance) is None:
                rows.put_prediction(connection, row)

        self.transact(write, writes=True)

    def find_prediction(self, key: TuneKey, expected: Provenance) -> StoredPrediction | None:
        """Return the valid prediction of a key; a damaged row counts as none.

        Raises:
            StoreError: the store cannot be read.
        """
        stored = self._predictions(of_key(tables.predictions, key))
        return next((p for p in stored if not differences(p.provenance, expected)), None)

    def predictions(
        self, kernel: str | None = None, device: str | None = None
    ) -> list[StoredPrediction]:
        """List the predictions of keys not tuned since, by kernel and device.

        Raises:
            StoreError: the store cannot be read.
        """
        return list(self.stream_predictions(kernel, device))

    def stream_predictions(
        self, kernel: str | None = None, device: str | None = None
    ) -> Iterator[StoredPrediction]:
        """Yield what `predictions` lists, of which a batch is in memory; raises as it does."""
        return self._predictions(rows.matching(tables.predictions, kernel, device))

    def save_examples(self, key: TuneKey, archive: str) -> None:
        """Save training rows of a key's run; raises as `save`. The oldest runs are deleted."""
        row = rows.examples_row(key, archive)
        self.transact(lambda connection: rows.put_examples(connection, row), writes=True)

    def examples(self, kernel: str) -> list[StoredExamples]:
        """Return training rows of the newest runs of a kernel, then of others; raises as `find`."""
        own = tables.examples.c.kernel == kernel
        found = self.transact(lambda connection: rows.fetch_examples(connection, own, ~own))
        return [row.value for row in map(rows.parse_examples, found) if row.value is not None]

    def _predictions(self, condition: ColumnElement[bool]) -> Iterator[StoredPrediction]:
        batches = self._batches(records.PREDICTIONS, condition, self.transact)
        loaded = chain.from_iterable(batches)
        return (row.value for row in loaded if row.value is not None)

    def _set_trials_aside(self, damaged: Sequence[LoadedRow[StoredTrial]]) -> None:
        if not damaged or not self._database.sets_aside:
            return
        ids = [row.id for row in damaged]
        self.transact(lambda connection: rows.delete_trials(connection, ids), writes=True)
        warnings.warn(
            f"store {self.place}: {len(ids)} remembered timings of {damaged[0].place} were damaged "
            f"({damaged[0].problem}) and have been deleted; they will be taken again",
            StoreWarning,
            stacklevel=3,
        )


def write_for_readers(path: Path, shipped: Iterable[TuneRecord]) -> int:
    """Write records as a store to ship: a new file for read-only places and for other users.

    Returns:
        How many there were.

    Raises:
        InputError: as `Store.save`.
        StoreError: the path is taken, or the file cannot be written.
    """
    count, left = 0, iter(shipped)

    def fill(connection: Connection) -> None:
        nonlocal count
        while batch := [*map(records.prepare, islice(left, records.BATCH))]:
            records.put(connection, batch)
            count += len(batch)

    transactions.make_for_readers(path, fill)
    return count


def _forget(connection: Connection, key: TuneKey) -> None:
    """Delete what was stored of a key before it had a record."""
    for table in (tables.trials, tables.predictions):
        rows.delete_key(connection, table, key)
