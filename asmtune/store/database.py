"""`Store`: tuned configs and the timings of every config measured, in a database."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import ColumnElement, Connection

from asmtune.base.errors import StoreError
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.store import checks, codec, files, partial_runs, predictions, rows, tables
from asmtune.store.faults import DamagedStoreError
from asmtune.store.lookup import (
    DIGITS_SHOWN,
    Remembered,
    StoredPrediction,
    StoreFinding,
    StoreLookup,
    StoreWarning,
    Unfinished,
    differences,
    judged,
    reusable,
)
from asmtune.store.transactions import Database, OnCorrupt, OpenMode


class OpenStore:
    """What every call of a store stands on: its database, which is of this version."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(
        cls,
        where: str | Path,
        *,
        on_corrupt: OnCorrupt = "error",
        patience_s: float = files.BUSY_SECONDS,
    ) -> Self:
        """The store in a file, or in the database that a URL names; made where missing.

        One of an older version is brought up to date, in one transaction.

        Args:
            where: path of an SQLite file, or a URL such as
                `postgresql://user@host/name`.
            on_corrupt: see `OpenMode`.
            patience_s: see `OpenMode`.

        Raises:
            InputError: the URL names no database driver that is installed.
            StoreError: the store cannot be read or made, or is of a newer
                version than this one knows.
        """
        database = Database.at(where, OpenMode(on_corrupt=on_corrupt, patience_s=patience_s))

        def current(connection: Connection) -> bool:
            return checks.is_current(
                connection, database.place, made_whole=database.path is not None
            )

        def bring_up_to_date(connection: Connection) -> None:
            if not current(connection):  # another process may have been faster
                tables.bring_up_to_date(connection)

        if not database.transact(current):
            database.transact(bring_up_to_date, writes=True)
        return cls(database)

    @property
    def place(self) -> str:
        """What messages call it; holds no password."""
        return self._database.place

    def close(self) -> None:
        """Lets go of the database; a file is let go after each call anyway."""
        self._database.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def transact(self, work: Callable[[Connection], _T], *, writes: bool = False) -> _T:
        """Runs `work` in a transaction, which may write where told; for this room alone.

        Raises:
            StoreError: the store cannot be read or written.
        """
        return self._database.transact(work, writes=writes)


class ProvisionalStore(OpenStore):
    """Keeps what is known of a key before it has a record; a record takes its place."""

    def remember(
        self,
        key: TuneKey,
        provenance: Provenance,
        measurements: Iterable[Measurement] = (),
        failures: Iterable[tuple[Config, Failure]] = (),
    ) -> None:
        """Keeps outcomes of a run that has not ended; committed when this returns.

        Raises:
            InputError: as `save`.
            StoreError: as `save`.
        """
        formed = partial_runs.form(key, provenance, measurements, failures)
        if formed:
            self.transact(lambda connection: partial_runs.put(connection, formed), writes=True)

    def remembered(self, key: TuneKey, expected: Provenance) -> Remembered:
        """What earlier runs of a key found that holds for how it would be tuned now.

        Of runs that have not ended, with the same source and Triton (major.minor);
        and of the key's record, where its space alone differs. The newest outcome
        of a config counts. A damaged row is left out; it is deleted, with one
        `StoreWarning`, where the store was opened with `on_corrupt="set_aside"`.

        Raises:
            StoreError: the store cannot be read.
        """
        identity = codec.key_digest(key)

        def read(
            connection: Connection,
        ) -> tuple[list[rows.LoadedRecord], list[partial_runs.LoadedTrial]]:
            return (
                rows.load(connection, tables.keys.c.digest == identity),
                partial_runs.load(connection, tables.trials.c.digest == identity),
            )

        records, loaded = self.transact(read)
        self._set_trials_aside([row for row in loaded if row.trial is None])
        earlier: list[partial_runs.Outcome] = []
        for record in (row.record for row in records if row.record is not None):
            made = record.provenance
            if reusable(made.source, made.triton, expected) and made.space != expected.space:
                earlier += [*record.measurements, *record.failures]
        later = (row.trial for row in loaded if row.trial is not None)
        return partial_runs.merged(earlier, later, expected)

    def unfinished(self, kernel: str | None = None, device: str | None = None) -> list[Unfinished]:
        """Runs that have not ended or were cut off, by kernel and device.

        Raises:
            StoreError: the store cannot be read.
        """
        condition = partial_runs.matching(kernel, device)
        loaded = self.transact(lambda connection: partial_runs.load(connection, condition))
        return partial_runs.unfinished(row.trial for row in loaded if row.trial is not None)

    def predict(self, prediction: StoredPrediction) -> None:
        """Keeps what the model chose for a key, unless it was tuned and that holds.

        Raises:
            InputError: as `save`.
            StoreError: as `save`.
        """
        row = predictions.form(prediction)

        def write(connection: Connection) -> None:
            if rows.standing(connection, prediction.key, prediction.provenance) is None:
                predictions.put(connection, row)

        self.transact(write, writes=True)

    def predicted(self, key: TuneKey, expected: Provenance) -> StoredPrediction | None:
        """What the model chose for a key, where that holds; a damaged row is none.

        Raises:
            StoreError: the store cannot be read.
        """
        condition = tables.predictions.c.digest == codec.key_digest(key)
        for found in self.transact(lambda connection: predictions.load(connection, condition)):
            if isinstance(found, StoredPrediction) and not differences(found.provenance, expected):
                return found
        return None

    def predictions(
        self, kernel: str | None = None, device: str | None = None
    ) -> list[StoredPrediction]:
        """All that the model chose and nobody has tuned since, by kernel and device.

        Raises:
            StoreError: the store cannot be read.
        """
        condition = predictions.matching(kernel, device)
        loaded = self.transact(lambda connection: predictions.load(connection, condition))
        return [found for found in loaded if isinstance(found, StoredPrediction)]

    def _set_trials_aside(self, damaged: Sequence[partial_runs.LoadedTrial]) -> None:
        if not damaged or self._database.access.on_corrupt == "error":
            return
        ids = [row.id for row in damaged]
        self.transact(lambda connection: partial_runs.drop_ids(connection, ids), writes=True)
        warnings.warn(
            f"store {self.place}: {len(ids)} remembered timings of {damaged[0].place} were damaged "
            f"({damaged[0].problem}) and have been deleted; they will be taken again",
            StoreWarning,
            stacklevel=3,
        )


class Store(ProvisionalStore):
    """Tune records by key; made with `Store.open`.

    Several processes and threads may use one at a time; each call is one
    transaction. SQLite's write-ahead log needs shared memory, so that a file
    on a network file system must not be used from two hosts at once: hosts
    share a store by PostgreSQL.
    """

    def save(self, record: TuneRecord) -> None:
        """Keeps a record, in place of an older one of the same key; all of it or nothing.

        What was remembered of the key's unfinished runs goes with the older one, and so
        does what was predicted.

        Raises:
            InputError: a value cannot be kept, such as a NaN time or a config
                value that is not a number, string or boolean; names it.
            StoreError: the store cannot be written.
        """
        self.save_all([record])

    def save_all(self, records: Iterable[TuneRecord]) -> int:
        """Keeps records as `save` does, all of them or none; how many."""
        checked = [_checked(record) for record in records]

        def write(connection: Connection) -> int:
            for record in checked:
                _replace(connection, record)
            return len(checked)

        return self.transact(write, writes=True)

    def keep_first(self, record: TuneRecord, but: int | None = None) -> TuneRecord:
        """Keeps a record unless one that holds is there; the one that is there then.

        So all who tuned a key at the same time go on with the same config.

        Args:
            record: what was tuned.
            but: id of a row of `keys` to replace although it holds.

        Raises:
            InputError: as `save`.
            StoreError: as `save`.
        """
        checked = _checked(record)

        def write(connection: Connection) -> TuneRecord:
            there = rows.standing(connection, checked.key, checked.provenance)
            if there is not None and there.record is not None and there.id != but:
                _forget(connection, checked.key)
                return there.record
            _replace(connection, checked)
            return record

        return self.transact(write, writes=True)

    def find(self, key: TuneKey) -> TuneRecord | None:
        """The record of a key, whether or not it still holds.

        Raises:
            StoreError: the store cannot be read, or, where it was opened with
                `on_corrupt="error"`, the record is damaged.
        """
        return next(iter(self._select(tables.keys.c.digest == codec.key_digest(key))), None)

    def lookup(self, key: TuneKey, expected: Provenance) -> StoreLookup:
        """What the store knows of a key, judged against how it would be tuned now.

        A damaged record gives "corrupt"; it is deleted, with one `StoreWarning`,
        where the store was opened with `on_corrupt="set_aside"`.

        Raises:
            StoreError: the store cannot be read.
        """
        for loaded in self._load(tables.keys.c.digest == codec.key_digest(key)):
            if loaded.record is not None:
                return judged(loaded.record, expected, "store")
            if self._database.access.on_corrupt == "set_aside":
                self._set_row_aside(loaded)
            return StoreLookup("corrupt", detail=loaded.problem)
        return StoreLookup("miss", detail=f"no record of {key.kernel} for this shape and device")

    def records(self, kernel: str | None = None, device: str | None = None) -> list[TuneRecord]:
        """All records, or those of a kernel, a device or both; by kernel and device.

        Raises:
            StoreError: as `find` does.
        """
        return self._select(rows.matching(kernel, device))

    def by_digest(self, prefix: str) -> list[TuneRecord]:
        """The records whose key digest starts with some hex digits.

        Raises:
            StoreError: as `find` does.
        """
        return self._select(tables.keys.c.digest.startswith(prefix, autoescape=True))

    def clear(self, kernel: str | None = None, device: str | None = None) -> int:
        """Deletes all records, or those of a kernel, a device or both; how many.

        What was remembered of unfinished runs, and what was predicted, goes with them.

        Raises:
            StoreError: the store cannot be written.
        """

        def write(connection: Connection) -> int:
            partial_runs.drop(connection, partial_runs.matching(kernel, device))
            predictions.drop(connection, predictions.matching(kernel, device))
            return rows.drop(connection, rows.matching(kernel, device))

        return self.transact(write, writes=True)

    def verify(self) -> list[StoreFinding]:
        """Everything wrong with what is stored; deletes and sets aside nothing.

        Raises:
            StoreError: the store cannot be read for a reason other than damage.
        """
        try:
            return self._database.once(checks.findings)
        except DamagedStoreError as error:
            return [StoreFinding("file", str(error))]

    def _select(self, condition: ColumnElement[bool]) -> list[TuneRecord]:
        records = []
        for loaded in self._load(condition):
            if loaded.record is not None:
                records.append(loaded.record)
            elif self._database.access.on_corrupt == "set_aside":
                self._set_row_aside(loaded)
            else:
                raise StoreError(
                    f"store {self.place}: record {loaded.digest[:DIGITS_SHOWN]} is damaged "
                    f"({loaded.problem}); `asmtune cache verify` lists such, `asmtune cache "
                    f"clear --kernel {loaded.kernel!a} --yes` deletes the kernel's records"
                )
        return records

    def _load(self, condition: ColumnElement[bool]) -> list[rows.LoadedRecord]:
        return self.transact(lambda connection: rows.load(connection, condition))

    def _set_row_aside(self, loaded: rows.LoadedRecord) -> None:
        condition = tables.keys.c.id == loaded.id
        self.transact(lambda connection: rows.drop(connection, condition), writes=True)
        warnings.warn(
            f"store {self.place}: record {loaded.digest[:DIGITS_SHOWN]} was damaged "
            f"({loaded.problem}) and has been deleted; it will be tuned again",
            StoreWarning,
            stacklevel=3,
        )


def _checked(record: TuneRecord) -> TuneRecord:
    """The record as it will be loaded.

    Raises:
        InputError: a value of it cannot be kept.
    """
    return codec.record_from_json(codec.record_to_json(record), f"{record.key.kernel}: record")


def _replace(connection: Connection, record: TuneRecord) -> None:
    rows.put(connection, record)
    _forget(connection, record.key)


def _forget(connection: Connection, key: TuneKey) -> None:
    digest = codec.key_digest(key)
    partial_runs.drop(connection, tables.trials.c.digest == digest)
    predictions.drop(connection, tables.predictions.c.digest == digest)


_T = TypeVar("_T")
