"""`Store`: tuned configs, the timings of every config measured, and predictions, in a database."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import ColumnElement, Connection, Table

from asmtune.base.errors import StoreError
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.store import codec, rows, tables, transactions
from asmtune.store.faults import DamagedStoreError
from asmtune.store.lookup import (
    DIGITS_SHOWN,
    EarlierOutcomes,
    StoredExamples,
    StoredPrediction,
    StoredTrial,
    StoreFinding,
    StoreLookup,
    StoreWarning,
    UnfinishedRun,
    differences,
    judge,
    merge_outcomes,
    unfinished_runs,
)
from asmtune.store.rows import LoadedRow
from asmtune.store.transactions import Database, OnCorrupt, OpenMode

_T = TypeVar("_T")


class Store:
    """Tune records by key, and what is known of keys that have none; made with `Store.open`.

    Several processes and threads may use one at a time; each call is one transaction. SQLite's
    write-ahead log needs shared memory: a file on a network file system must not be used from
    two hosts at once. Hosts share a store by PostgreSQL.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

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

    @property
    def place(self) -> str:
        """Name the store in messages; holds no password."""
        return self._database.place

    def close(self) -> None:
        """Disconnect from the database; a file is closed after each call anyway."""
        self._database.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def transact(self, work: Callable[[Connection], _T], *, writes: bool = False) -> _T:
        """Run `work` in a transaction; only for modules of this package.

        Raises:
            StoreError: the store cannot be read or written.
        """
        return self._database.transact(work, writes=writes)

    def save(self, record: TuneRecord) -> None:
        """Save a record in place of an older one of the same key, all of it or nothing.

        The outcomes of the key's unfinished runs and its prediction are deleted.

        Raises:
            InputError: a value cannot be stored, such as a NaN time or a config value that is
                not a number, string or boolean; the message names it.
            StoreError: the store cannot be written.
        """
        self.save_all([record])

    def save_all(self, records: Iterable[TuneRecord]) -> int:
        """Save records as `save` does, all of them or none; return how many."""
        checked = [_checked(record) for record in records]

        def write(connection: Connection) -> int:
            for record in checked:
                rows.put_record(connection, record)
                _forget(connection, record.key)
            return len(checked)

        return self.transact(write, writes=True)

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
        checked = _checked(record)

        def write(connection: Connection) -> TuneRecord:
            stored = rows.valid_record(connection, checked.key, checked.provenance)
            _forget(connection, checked.key)
            if stored is not None and stored.value is not None and stored.id != replaced:
                return stored.value
            rows.put_record(connection, checked)
            return record

        return self.transact(write, writes=True)

    def find(self, key: TuneKey) -> TuneRecord | None:
        """Return the record of a key, valid or stale.

        Raises:
            StoreError: the store cannot be read, or, where it was opened with
                `on_corrupt="error"`, the record is damaged.
        """
        return next(iter(self._select(_of_key(tables.keys, key))), None)

    def lookup(self, key: TuneKey, expected: Provenance) -> StoreLookup:
        """Look up a key's record and judge it against how the key would be tuned now.

        A damaged record gives "corrupt"; it is deleted, with one `StoreWarning`,
        where the store was opened with `on_corrupt="set_aside"`.

        Raises:
            StoreError: the store cannot be read.
        """
        for loaded in self._load(_of_key(tables.keys, key)):
            if loaded.value is not None:
                return judge(loaded.value, expected, "store")
            if self._database.sets_aside:
                self._set_row_aside(loaded)
            return StoreLookup("corrupt", detail=loaded.problem)
        return StoreLookup("miss", detail=f"no record of {key.kernel} for this shape and device")

    def records(self, kernel: str | None = None, device: str | None = None) -> list[TuneRecord]:
        """List all records, or those of a kernel, a device or both; by kernel and device.

        Raises:
            StoreError: as `find` does.
        """
        return self._select(rows.matching(tables.keys, kernel, device))

    def by_digest(self, prefix: str) -> list[TuneRecord]:
        """List the records whose key digest starts with some hex digits.

        Raises:
            StoreError: as `find` does.
        """
        return self._select(tables.keys.c.digest.startswith(prefix, autoescape=True))

    def clear(self, kernel: str | None = None, device: str | None = None) -> int:
        """Delete all records, or those of a kernel, a device or both, and count them.

        Outcomes of unfinished runs, predictions and training rows go with them.

        Raises:
            StoreError: the store cannot be written.
        """

        def write(connection: Connection) -> int:
            for table in (tables.trials, tables.predictions, tables.examples):
                rows.delete_rows(connection, table, rows.matching(table, kernel, device))
            return rows.delete_rows(
                connection, tables.keys, rows.matching(tables.keys, kernel, device)
            )

        return self.transact(write, writes=True)

    def verify(self) -> list[StoreFinding]:
        """List everything that is wrong with the store; delete and set aside nothing.

        Raises:
            StoreError: the store cannot be read for a reason other than damage.
        """
        try:
            return self._database.once(rows.find_damage)
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
        records, loaded = self.transact(
            lambda connection: (
                rows.load_records(connection, _of_key(tables.keys, key)),
                rows.load_trials(connection, _of_key(tables.trials, key)),
            )
        )
        self._set_trials_aside([row for row in loaded if row.value is None])
        return merge_outcomes(
            (row.value for row in records if row.value is not None),
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
        loaded = self.transact(lambda connection: rows.load_trials(connection, condition))
        return unfinished_runs(row.value for row in loaded if row.value is not None)

    def save_prediction(self, prediction: StoredPrediction) -> None:
        """Save a prediction, unless the key has a valid record.

        Raises:
            InputError: as `save`.
            StoreError: as `save`.
        """
        row = rows.prediction_row(prediction)

        def write(connection: Connection) -> None:
            if rows.valid_record(connection, prediction.key, prediction.provenance) is None:
                rows.put_prediction(connection, row)

        self.transact(write, writes=True)

    def find_prediction(self, key: TuneKey, expected: Provenance) -> StoredPrediction | None:
        """Return the valid prediction of a key; a damaged row counts as none.

        Raises:
            StoreError: the store cannot be read.
        """
        stored = self._predictions(_of_key(tables.predictions, key))
        return next((p for p in stored if not differences(p.provenance, expected)), None)

    def predictions(
        self, kernel: str | None = None, device: str | None = None
    ) -> list[StoredPrediction]:
        """List the predictions of keys not tuned since, by kernel and device.

        Raises:
            StoreError: the store cannot be read.
        """
        return self._predictions(rows.matching(tables.predictions, kernel, device))

    def save_examples(self, key: TuneKey, archive: str) -> None:
        """Save training rows of a key's run; raises as `save`. The oldest runs are deleted."""
        row = rows.examples_row(key, archive)
        self.transact(lambda connection: rows.put_examples(connection, row), writes=True)

    def examples(self, kernel: str) -> list[StoredExamples]:
        """Return training rows of the newest runs of a kernel, then of others; raises as `find`."""
        own, most = tables.examples.c.kernel == kernel, rows.MOST_LOADED
        loaded = self.transact(lambda c: rows.load_examples(c, own, ~own, most=most))
        return [row.value for row in loaded if row.value is not None]

    def _predictions(self, condition: ColumnElement[bool]) -> list[StoredPrediction]:
        loaded = self.transact(lambda connection: rows.load_predictions(connection, condition))
        return [row.value for row in loaded if row.value is not None]

    def _load(self, condition: ColumnElement[bool]) -> list[LoadedRow[TuneRecord]]:
        return self.transact(lambda connection: rows.load_records(connection, condition))

    def _select(self, condition: ColumnElement[bool]) -> list[TuneRecord]:
        records = []
        for loaded in self._load(condition):
            if loaded.value is not None:
                records.append(loaded.value)
            elif self._database.sets_aside:
                self._set_row_aside(loaded)
            else:
                raise StoreError(
                    f"store {self.place}: record {loaded.digest[:DIGITS_SHOWN]} is damaged "
                    f"({loaded.problem}); `asmtune cache verify` lists such, `asmtune cache "
                    f"clear --kernel {loaded.kernel!a} --yes` deletes the kernel's records"
                )
        return records

    def _set_row_aside(self, loaded: LoadedRow[TuneRecord]) -> None:
        condition = tables.keys.c.id == loaded.id
        self.transact(lambda c: rows.delete_rows(c, tables.keys, condition), writes=True)
        warnings.warn(
            f"store {self.place}: record {loaded.digest[:DIGITS_SHOWN]} was damaged "
            f"({loaded.problem}) and has been deleted; it will be tuned again",
            StoreWarning,
            stacklevel=3,
        )

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


def write_for_readers(path: Path, records: Iterable[TuneRecord]) -> None:
    """Write records as a store to ship: a new file for read-only places and for other users.

    Raises:
        InputError: as `Store.save`.
        StoreError: the path is taken, or the file cannot be written.
    """
    checked = [_checked(record) for record in records]

    def fill(connection: Connection) -> None:
        for record in checked:
            rows.put_record(connection, record)

    transactions.make_for_readers(path, fill)


def _of_key(table: Table, key: TuneKey) -> ColumnElement[bool]:
    return table.c.digest == codec.key_digest(key)


def _checked(record: TuneRecord) -> TuneRecord:
    return codec.record_from_json(codec.record_to_json(record), f"{record.key.kernel}: record")


def _forget(connection: Connection, key: TuneKey) -> None:
    """Delete what was stored of a key before it had a record."""
    for table in (tables.trials, tables.predictions):
        rows.delete_key(connection, table, key)
