"""`RecordReader`: the tune records of a database, read in batches and parsed between them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Table

from asmtune.base.errors import StoreError
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.store import codec, records, rows, tables
from asmtune.store.key_index import Change, KeyIndex, behind
from asmtune.store.lookup import RecordSummary, StoreLookup, StoreWarning, judge
from asmtune.store.records import Reading
from asmtune.store.rows import LoadedRow
from asmtune.store.transactions import Database

_T = TypeVar("_T")


class Run(Protocol):
    """Runs work in a transaction, as `Database.transact` and `Database.once` do."""

    def __call__(self, work: Callable[[Connection], _T], /) -> _T:
        """Return the result of the work."""
        ...


class RecordReader:
    """Reads the records of a database; `Store` is one that writes them too."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._indexes: dict[str, KeyIndex] = {}

    @property
    def place(self) -> str:
        """Name the store in messages; holds no password."""
        return self._database.place

    def transact(self, work: Callable[[Connection], _T], *, writes: bool = False) -> _T:
        """Run `work` in a transaction; only for modules of this package.

        Raises:
            StoreError: the store cannot be read or written.
        """
        return self._database.transact(work, writes=writes)

    def find(self, key: TuneKey) -> TuneRecord | None:
        """Return the record of a key, valid or stale.

        Raises:
            StoreError: the store cannot be read, or, where it was opened with
                `on_corrupt="error"`, the record is damaged.
        """
        return next(iter(self._sound(self._load(key))), None)

    def lookup(self, key: TuneKey, expected: Provenance) -> StoreLookup:
        """Look up a key's record and judge it against how the key would be tuned now.

        A damaged record gives "corrupt"; it is deleted, with one `StoreWarning`,
        where the store was opened with `on_corrupt="set_aside"`.

        Raises:
            StoreError: the store cannot be read.
        """
        for loaded in self._load(key):
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
        return list(self.stream(kernel, device))

    def stream(self, kernel: str | None = None, device: str | None = None) -> Iterator[TuneRecord]:
        """Yield what `records` lists, of which a batch is in memory; raises as `find` does."""
        return self._select(records.WHOLE, rows.matching(tables.keys, kernel, device))

    def heads(self, kernel: str | None = None, device: str | None = None) -> list[codec.Head]:
        """List records as `records` does, without timings; raises as `find` does."""
        condition = rows.matching(tables.keys, kernel, device)
        return list(self._select(records.HEADS, condition))

    def summaries(
        self, kernel: str | None = None, device: str | None = None
    ) -> Iterator[RecordSummary]:
        """Yield what is in the store as `stream` does, with counts of the timings in their place.

        Raises:
            StoreError: as `find` does.
        """
        return self._select(records.SUMMARIES, rows.matching(tables.keys, kernel, device))

    def near(self, key: TuneKey, now: Provenance | None = None) -> list[TuneRecord]:
        """List the records nearest to a key, some of each device, in no order; without samples.

        Args:
            key: the key; its own record may be among them.
            now: how the key would be tuned; where given, records are those that `KeyIndex.nearest`
                says, and have no timings, but where their winner is an alternative.

        Raises:
            StoreError: as `find` does.
        """
        if now is None:
            return self._nearest(records.UNSAMPLED, key, now)
        heads = self._nearest(records.HEADS, key, now)
        whole = [head.key for head in heads if head.winner.alternative is not None]
        found = [TuneRecord(h.key, h.winner, (), h.provenance) for h in heads if h.key not in whole]
        return [*found, *filter(None, map(self.find, whole))]

    def _nearest(self, reading: Reading[_T], key: TuneKey, now: Provenance | None) -> list[_T]:
        index = self._indexes.get(key.kernel, KeyIndex())

        def work(connection: Connection) -> Change | Sequence[Any]:
            nonlocal index
            change = behind(connection, key.kernel, index)
            if change.rows:
                return change
            index = change.known
            return reading.fetch(connection, tables.keys.c.id.in_(index.nearest(key, now)))

        while isinstance(found := self.transact(work), Change):
            index = found.known.having(found.rows)
        self._indexes[key.kernel] = index
        return list(self._sound(map(reading.parse, found)))

    def by_digest(self, prefix: str) -> list[TuneRecord]:
        """List the records whose key digest starts with some hex digits.

        Raises:
            StoreError: as `find` does.
        """
        condition = tables.keys.c.digest.startswith(prefix, autoescape=True)
        return list(self._select(records.WHOLE, condition))

    def _load(self, key: TuneKey) -> list[LoadedRow[TuneRecord]]:
        condition = of_key(tables.keys, key)
        return list(map(records.parse, self.transact(partial(records.fetch, condition=condition))))

    def _select(self, reading: Reading[_T], condition: ColumnElement[bool]) -> Iterator[_T]:
        for batch in self._batches(reading, condition, self.transact):
            yield from list(self._sound(batch))  # nothing of a batch with a damaged record

    @staticmethod
    def _batches(
        reading: Reading[_T], condition: ColumnElement[bool], run: Run
    ) -> Iterator[list[LoadedRow[_T]]]:
        """Read rows in batches, each in a transaction of its own, and parse them between those."""
        found = run(partial(records.handles, table=reading.table, condition=condition))
        for start in range(0, len(found), reading.most):
            batch = found[start : start + reading.most]
            yield list(map(reading.parse, run(partial(reading.read, batch))))

    def _sound(self, rows_read: Iterable[LoadedRow[_T]]) -> Iterator[_T]:
        for loaded in rows_read:
            if loaded.value is not None:
                yield loaded.value
            elif self._database.sets_aside:
                self._set_row_aside(loaded)
            else:
                raise StoreError(
                    f"store {self.place}: record {loaded.digits} is damaged "
                    f"({loaded.problem}); `asmtune cache verify` lists such, `asmtune cache "
                    f"clear --kernel {loaded.row.kernel!a} --yes` deletes the kernel's records"
                )

    def _set_row_aside(self, loaded: LoadedRow[Any]) -> None:
        condition = tables.keys.c.id == loaded.id
        self.transact(lambda c: rows.delete_rows(c, tables.keys, condition), writes=True)
        warnings.warn(
            f"store {self.place}: record {loaded.digits} was damaged "
            f"({loaded.problem}) and has been deleted; it will be tuned again",
            StoreWarning,
            stacklevel=3,
        )


def of_key(table: Table, key: TuneKey) -> ColumnElement[bool]:
    """Return the condition for the rows of a key."""
    return table.c.digest == codec.key_digest(key)
