"""Tune records as rows of `keys` and `outcomes`: written, read, checked and listed.

A row of `keys` is sealed without its outcomes, whose digest is one of its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    func,
    insert,
    or_,
    select,
)

from asmtune.base import json_codec
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical, digest
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.store import codec
from asmtune.store.lookup import RecordSummary, StoreFinding, differences
from asmtune.store.neighbours import KeyIndex
from asmtune.store.tables import (
    LoadedRow,
    delete_rows,
    keys,
    loaded,
    of_key,
    outcomes,
    predictions,
    read_prediction,
    read_trial,
    store_name,
    trials,
)
from asmtune.store.transactions import unlimited

_T = TypeVar("_T")

BATCH: Final = 100
"""Records that one transaction reads or writes. With 100 timings of 60 samples each they are 10 MB
of text, and take some 10 ms."""

MANY: Final = 1000
"""Records that one transaction reads without their timings."""

_OUTCOMES: Final = ("measurements", "failures", "samples")
"""Columns of `outcomes`, in the order of their seal."""


@dataclass(frozen=True)
class Prepared:
    """A record as rows that can be written: of `keys`, and of `outcomes`."""

    key: dict[str, Any]
    outcomes: dict[str, str]


def prepare(record: TuneRecord, *, checked: bool = False) -> Prepared:
    """Make a record's rows; outside of transactions.

    Args:
        record: the record.
        checked: whether `record_from_json` has made it, so that it need not be checked.

    Raises:
        InputError: a value cannot be stored; the message names it.
    """
    value = codec.record_to_json(record)
    if not checked:
        codec.record_from_json(value, f"{record.key.kernel}: record")  # as it will be read
    value["samples"] = [timing.pop("samples_us") for timing in value["measurements"]]
    texts = {name: canonical(value[name]) for name in _OUTCOMES}
    median_us = record.median_us
    summed = {
        "timed": len(record.measurements),
        "failed": len(record.failures),
        "median_us": None if median_us is None else float(median_us),
        "tried": canonical(sorted(record.tried)),
        "outcomes": digest(*texts.values()),
    }
    return Prepared(codec.sealed({**codec.head_columns(record), **summed}), texts)


def prepared_batches(
    saved: Iterable[TuneRecord], *, checked: bool = False
) -> Iterator[list[Prepared]]:
    """Yield records in batches as `prepare` makes them ready; raises as it does."""
    left, prepared = iter(saved), partial(prepare, checked=checked)
    while batch := [*map(prepared, islice(left, BATCH))]:
        yield batch


def put(connection: Connection, batch: Sequence[Prepared]) -> None:
    """Write records, at most `BATCH`, in place of those of the same keys.

    What was stored of the keys before they had a record is deleted.
    """
    by_digest = {one.key["digest"]: one for one in batch}  # of a key that comes twice, the last
    for table in (keys, trials, predictions):
        delete_rows(connection, table, digests(table, by_digest))
    connection.execute(insert(keys), [one.key for one in by_digest.values()])
    found = connection.execute(select(keys.c.id, keys.c.digest).where(digests(keys, by_digest)))
    rows = [{"key_id": row_id, **by_digest[name].outcomes} for row_id, name in found]
    connection.execute(insert(outcomes), rows)


def handles(
    connection: Connection, table: Table, condition: ColumnElement[bool]
) -> list[tuple[Any, ...]]:
    """List the primary keys of the rows that match, each with the digest of its key.

    A record's digest finds what has been saved in its place meanwhile.
    """
    query = _in_order(select(*table.primary_key, table.c.digest), table)
    rows = _selected(query, connection, condition)
    return [tuple(row) for row in rows]  # plain ones, which Python's collector leaves alone


def _in_order(query: Select[Any], table: Table) -> Select[Any]:
    """Sort by kernel and device, then as saved: rows that are read together lie together."""
    return query.order_by(table.c.kernel, table.c.device, *table.primary_key)


def digests(table: Table, names: Iterable[str]) -> ColumnElement[bool]:
    """Return the condition for the rows of some digests; damaged digests are left out."""
    return table.c.digest.in_([name for name in map(str, names) if name.isascii()])


_RECORDS: Final = _in_order(
    select(keys, *(outcomes.c[name] for name in _OUTCOMES)).join_from(keys, outcomes, isouter=True),
    keys,
)


def fetch(connection: Connection, condition: ColumnElement[bool]) -> Sequence[Row[Any]]:
    """Read the rows of the records that match, at most some hundreds; `parse` reads them."""
    return _selected(_RECORDS, connection, condition)


def _selected(
    query: Select[Any], connection: Connection, condition: ColumnElement[bool]
) -> Sequence[Row[Any]]:
    return connection.execute(query.where(condition)).all()


def parse(row: Row[Any], *, samples: bool = True) -> LoadedRow[TuneRecord]:
    """Check a record's row against digest and seals, and read it; outside of transactions.

    Args:
        row: the row, as `fetch` reads it.
        samples: whether to read the samples of timings, which are most of a record.
    """
    return loaded(row, partial(_record, samples=samples))


def _record(row: Row[Any], *, samples: bool) -> TuneRecord:
    columns = row._asdict()
    texts = [columns.pop(name) for name in _OUTCOMES]
    sound = all(isinstance(text, str) and text.isascii() for text in texts)
    if not sound or row.outcomes != digest(*texts):
        raise InputError("its outcomes do not match their seal")
    timings, failed, taken = (json_codec.json_of(text, "row") for text in texts)
    if not (isinstance(timings, list) and isinstance(failed, list) and isinstance(taken, list)):
        raise InputError("its outcomes are no lists")
    if samples:
        pairs = zip(timings, taken, strict=False)
        timings = [{**t, "samples_us": own} if isinstance(t, dict) else t for t, own in pairs]
    return codec.read_row(columns, timings, failed)


def _head(row: Row[Any]) -> TuneRecord:
    return codec.read_row(row._asdict())


def _summary(row: Row[Any]) -> RecordSummary:
    codec.check_seal(row._asdict())
    shape = json_codec.scalars_of(json_codec.json_of(row.shape, "row.shape"), "row.shape")
    dtypes = _key(row.kernel, row.dtypes, row.device).dtypes
    key = (row.digest, row.kernel, shape, dtypes, row.device)
    counts = (row.timed, row.failed, row.median_us)
    return RecordSummary(*key, _winner(row.winner), row.date, *counts)


# All but the sizes of a shape is alike in many records, and read once.
@lru_cache(maxsize=4096)
def _key(kernel: str, dtypes: str, device: str) -> TuneKey:
    value = {"kernel": kernel, "shape": {}, "device": device}
    return codec.key_from_json({**value, "dtypes": json_codec.json_of(dtypes, "row")}, "row")


@lru_cache(maxsize=4096)
def _winner(text: str) -> Mapping[str, Any]:
    return codec.config_from_json(json_codec.json_of(text, "row"), "row.winner").to_dict()


@dataclass(frozen=True)
class Reading(Generic[_T]):
    """A way to read rows of `keys`, `predictions` or `trials`.

    Attributes:
        table: the table.
        fetch: reads the rows that match a condition; within a transaction.
        parse: checks and reads one of them; outside.
        most: rows that one transaction reads.
    """

    table: Table
    fetch: Callable[[Connection, ColumnElement[bool]], Sequence[Any]]
    parse: Callable[[Any], LoadedRow[_T]]
    most: int

    @property
    def own(self) -> ColumnElement[Any]:
        """Return the table's primary key."""
        return next(iter(self.table.primary_key))

    def read(self, batch: Sequence[tuple[Any, ...]], connection: Connection) -> Sequence[Any]:
        """Read the rows of some handles, and what has been saved in the place of a record."""
        owners = (handle[0] for handle in batch)
        # A damaged digest, which is a prediction's primary key, may be no text to ask for.
        named = [one for one in owners if not isinstance(one, str) or one.isascii()]
        condition: ColumnElement[bool] = self.own.in_(named)
        found = self.fetch(connection, condition)
        if self.table is keys and len(found) < len(batch):
            again = digests(keys, [name for _, name in batch])
            return self.fetch(connection, or_(condition, again))
        return found


def _of_table(table: Table, read: Callable[[Row[Any]], _T]) -> Reading[_T]:
    fetch = partial(_selected, _in_order(select(table), table))
    return Reading(table, fetch, partial(loaded, parse=read), MANY)


WHOLE: Final = Reading(keys, fetch, parse, BATCH)
UNSAMPLED: Final = Reading(keys, fetch, partial(parse, samples=False), BATCH)
HEADS: Final = _of_table(keys, _head)
SUMMARIES: Final = _of_table(keys, _summary)
PREDICTIONS: Final = _of_table(predictions, read_prediction)
TRIALS: Final = _of_table(trials, read_trial)


def valid(connection: Connection, key: TuneKey, now: Provenance) -> LoadedRow[TuneRecord] | None:
    """Load the row of a key's record where it is valid for `now`; else return None."""
    made = keys.c.source == now.source, keys.c.space == now.space
    condition = and_(of_key(keys, key), *made)
    found = map(parse, fetch(connection, condition))
    return next((r for r in found if r.value and not differences(r.value.provenance, now)), None)


_INDEXED: Final = ("id", "shape", "dtypes", "device")


class Change(NamedTuple):
    """An index, empty where rows of it are gone, and rows that it lacks, at most `MANY`."""

    known: KeyIndex
    rows: Sequence[Row[Any]]


def behind(connection: Connection, kernel: str, index: KeyIndex) -> Change:
    """Read what an index lacks of a kernel's keys: no rows where it has them all."""
    if (store := store_name(connection)) != index.store:
        index = KeyIndex(store=store)
    own, read = keys.c.kernel == kernel, select(*(keys.c[name] for name in _INDEXED))
    sums = select(func.count(), func.coalesce(func.sum(keys.c.id), 0)).where(own)
    if tuple(map(int, connection.execute(sums).one())) == (len(index.ids), index.ids.sum()):
        return Change(index, ())
    query = read.where(own).order_by(keys.c.id).limit(MANY)
    newest = int(index.ids.max(initial=0))
    if rows := connection.execute(query.where(keys.c.id > newest)).all():
        return Change(index, rows)
    # Some are deleted, or were added by a transaction of a server that ended after a later one.
    return Change(KeyIndex(store=store), connection.execute(query).all())


def find_file_damage(connection: Connection) -> list[StoreFinding]:
    """List what is wrong with an SQLite file as SQLite sees it, and with its records' timings."""
    problems = []
    if connection.dialect.name == "sqlite":
        unlimited(connection)
        texts = connection.exec_driver_sql("PRAGMA integrity_check").scalars()
        problems = [" ".join(str(text).split()) for text in texts if text != "ok"]
    orphans = select(func.count()).where(outcomes.c.key_id.not_in(select(keys.c.id)))
    if count := connection.execute(orphans).scalar_one():
        problems.append(f"{count} rows of timings and failures belong to no record")
    return [StoreFinding("file", problem) for problem in problems]


def finding(loaded: LoadedRow[Any]) -> StoreFinding | None:
    """Return what is wrong with a row; None if nothing is."""
    problem, value = loaded.problem, loaded.value
    if isinstance(value, TuneRecord) and not codec.winner_is_timed(value):
        problem = "its winner is not among its measurements"
    return StoreFinding(loaded.place, problem) if problem else None
