"""`Store`: tuned configs and the timings of every config measured, in a database."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine

from asmtune.errors import StoreError
from asmtune.records import Provenance, TuneKey, TuneRecord
from asmtune.store import checks, codec, files, places, rows, tables
from asmtune.store.faults import DamagedStoreError, translated
from asmtune.store.lookup import DIGITS_SHOWN, Finding, Lookup, StoreWarning, judged

_T = TypeVar("_T")

OnCorrupt = Literal["error", "set_aside"]


class Store:
    """Tune records by key; made with `Store.open`.

    Several processes and threads may use one file at a time; each call is one
    transaction. SQLite's write-ahead log needs shared memory, so that a file
    on a network file system must not be used from two hosts at once.

    Args:
        engine: of the database.
        place: what messages call it; holds no password.
        path: the file, where it is SQLite's.
        on_corrupt: what to do with a damaged file or row.
    """

    def __init__(
        self, engine: Engine, place: str, path: Path | None = None, on_corrupt: OnCorrupt = "error"
    ) -> None:
        self.place = place
        self._engine = engine
        self._path = path
        self._on_corrupt = on_corrupt

    @classmethod
    def open(cls, where: str | Path, *, on_corrupt: OnCorrupt = "error") -> Self:
        """The store in a file, or in the database that a URL names; made where missing.

        Args:
            where: path of an SQLite file, or a URL such as
                `postgresql+psycopg://user@host/name`.
            on_corrupt: "error" raises where the file is damaged and leaves it
                alone; "set_aside" renames it, warns once (`StoreWarning`) and
                starts afresh. A damaged row is likewise kept or deleted.

        Raises:
            InputError: the URL names no database driver that is installed.
            StoreError: the store cannot be read or made, or is of a newer
                version than this one knows.
        """
        home = places.home(where)
        if isinstance(home, Path):
            store = cls(files.engine_of(home), str(home), home, on_corrupt)
        else:
            store = cls(*places.served(home), on_corrupt=on_corrupt)
        store._transact(lambda connection: checks.check_version(connection, store.place))
        return store

    def close(self) -> None:
        """Lets go of the database; a file is let go after each call anyway."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def save(self, record: TuneRecord) -> None:
        """Keeps a record, in place of an older one of the same key; all of it or nothing.

        Raises:
            InputError: a value cannot be kept, such as a NaN time or a config
                value that is not a number, string or boolean; names it.
            StoreError: the store cannot be written.
        """
        self.save_all([record])

    def save_all(self, records: Iterable[TuneRecord]) -> int:
        """Keeps records as `save` does, all of them or none; how many."""
        checked = [
            codec.record_from_json(codec.record_to_json(record), f"{record.key.kernel}: record")
            for record in records
        ]

        def write(connection: Connection) -> int:
            for record in checked:
                rows.put(connection, record)
            return len(checked)

        return self._transact(write, writes=True)

    def find(self, key: TuneKey) -> TuneRecord | None:
        """The record of a key, whether or not it still holds.

        Raises:
            StoreError: the store cannot be read, or, where it was opened with
                `on_corrupt="error"`, the record is damaged.
        """
        return next(iter(self._select(tables.keys.c.digest == codec.key_digest(key))), None)

    def lookup(self, key: TuneKey, expected: Provenance) -> Lookup:
        """What the store knows of a key, judged against how it would be tuned now.

        A damaged record gives "corrupt"; it is deleted, with one `StoreWarning`,
        where the store was opened with `on_corrupt="set_aside"`.

        Raises:
            StoreError: the store cannot be read.
        """
        for loaded in self._load(tables.keys.c.digest == codec.key_digest(key)):
            if loaded.record is not None:
                return judged(loaded.record, expected, "store")
            if self._on_corrupt == "set_aside":
                self._set_row_aside(loaded)
            return Lookup("corrupt", detail=loaded.problem)
        return Lookup("miss", detail=f"no record of {key.kernel} for this shape and device")

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

        Raises:
            StoreError: the store cannot be written.
        """
        condition = rows.matching(kernel, device)
        return self._transact(lambda connection: rows.drop(connection, condition), writes=True)

    def verify(self) -> list[Finding]:
        """Everything wrong with what is stored; deletes and sets aside nothing.

        Raises:
            StoreError: the store cannot be read for a reason other than damage.
        """
        try:
            return self._once(checks.findings, writes=False)
        except DamagedStoreError as error:
            return [Finding("file", str(error))]

    def _select(self, condition: ColumnElement[bool]) -> list[TuneRecord]:
        records = []
        for loaded in self._load(condition):
            if loaded.record is not None:
                records.append(loaded.record)
            elif self._on_corrupt == "set_aside":
                self._set_row_aside(loaded)
            else:
                raise StoreError(
                    f"store {self.place}: record {loaded.digest[:DIGITS_SHOWN]} is damaged "
                    f"({loaded.problem}); `asmtune cache verify` lists such, `asmtune cache "
                    f"clear --kernel {loaded.kernel!a} --yes` deletes the kernel's records"
                )
        return records

    def _load(self, condition: ColumnElement[bool]) -> list[rows.Loaded]:
        return self._transact(lambda connection: rows.load(connection, condition))

    def _set_row_aside(self, loaded: rows.Loaded) -> None:
        condition = tables.keys.c.id == loaded.id
        self._transact(lambda connection: rows.drop(connection, condition), writes=True)
        warnings.warn(
            f"store {self.place}: record {loaded.digest[:DIGITS_SHOWN]} was damaged "
            f"({loaded.problem}) and has been deleted; it will be tuned again",
            StoreWarning,
            stacklevel=3,
        )

    def _transact(self, work: Callable[[Connection], _T], *, writes: bool = False) -> _T:
        """Runs `work` in a transaction; once more on a fresh file if this one is damaged."""
        path = self._path
        if path is None:
            return self._once(work, writes)
        with translated(self.place):
            seen = files.ensure(path)
        try:
            return self._once(work, writes)
        except DamagedStoreError as error:
            if self._on_corrupt == "error":
                raise
            with translated(self.place):
                files.set_aside(path, seen, error.detail)
        return self._once(work, writes)

    def _once(self, work: Callable[[Connection], _T], writes: bool) -> _T:
        engine = files.writing(self._engine) if writes else self._engine
        with translated(self.place), engine.begin() as connection:
            return work(connection)
