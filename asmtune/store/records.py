"""Tune records as rows of `keys`, `timings` and `failures`: written, read, checked and listed.

What a row of `keys` is sealed by is a digest of text. Its columns are parts of that text, so that
a seal is checked before anything is parsed, and without the samples of timings that nobody needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
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
    literal,
    or_,
    select,
)

from asmtune.base import json_codec
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical, digest
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.store import codec
from asmtune.store.lookup import RecordSummary, StoreFinding, differences
from asmtune.store.rows import (
    LoadedRow,
    delete_rows,
    find_damaged,
    in_order,
    key_columns,
    loaded,
    parse_examples,
    parse_prediction,
    parse_trial,
)
from asmtune.store.tables import examples, failures, keys, predictions, timings, trials
from asmtune.store.transactions import unlimited

_T = TypeVar("_T")

BATCH: Final = 100
"""Records that one transaction reads or writes. With 100 timings of 60 samples each they are 10 MB
of text, and take some 10 ms."""

MANY: Final = 1000
"""Records that one transaction reads without their timings."""

_TIMES: Final = ("median_us", "p20_us", "p80_us")
_FAILURE: Final = ("stage", "kind", "detail")


class Handle(NamedTuple):
    """A row of `keys`; its digest finds what has been saved in its place meanwhile."""

    id: int
    digest: str


@dataclass(frozen=True)
class RecordRows:
    """The rows of a record, as they were read."""

    row: Row[Any]
    timed: Sequence[Row[Any]]
    failed: Sequence[Row[Any]]


@dataclass(frozen=True)
class Prepared:
    """A record as rows that can be written: `key`'s columns, and those of its outcomes."""

    key: dict[str, Any]
    timed: list[dict[str, Any]]
    failed: list[dict[str, Any]]


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
    timed, failed = (list(map(_child_row, value[name])) for name in ("measurements", "failures"))
    columns = {
        **key_columns(record.key),
        "winner": canonical(value["winner"]),
        **value["provenance"],
    }
    fields = codec.head_fields(columns)
    fields |= {"measurements": _list(timed, _TIMES, "samples"), "failures": _list(failed, _FAILURE)}
    seal = digest(_object(fields))
    return Prepared({**columns, "seal": seal, "head": digest(_head(columns, seal))}, timed, failed)


def _child_row(item: Mapping[str, Any]) -> dict[str, Any]:
    row = {**item, "config": canonical(item["config"])}
    if "samples_us" in row:
        row["samples"] = canonical(row.pop("samples_us"))
    return row


def put(connection: Connection, batch: Sequence[Prepared]) -> None:
    """Write records, at most `BATCH`, in place of those of the same keys.

    What was stored of the keys before they had a record is deleted.
    """
    by_digest = {one.key["digest"]: one for one in batch}  # of a key that comes twice, the last
    for table in (keys, trials, predictions):
        delete_rows(connection, table, digests(table, by_digest))
    connection.execute(insert(keys), [one.key for one in by_digest.values()])
    found = connection.execute(select(keys.c.id, keys.c.digest).where(digests(keys, by_digest)))
    ids = {name: row_id for row_id, name in found}
    for table, kind in ((timings, "timed"), (failures, "failed")):
        rows = [
            {"key_id": ids[name], "position": position, **row}
            for name, one in by_digest.items()
            for position, row in enumerate(getattr(one, kind))
        ]
        if rows:
            connection.execute(insert(table), rows)


def _head(row: Mapping[str, Any], seal: Any) -> str:
    return f"[{_object(codec.head_fields(row))},{canonical(seal)}]"


def _object(fields: Mapping[str, str]) -> str:
    return "{" + ",".join([f'"{name}":{fields[name]}' for name in sorted(fields)]) + "}"


def _list(rows: Iterable[Mapping[str, Any]], names: Sequence[str], samples: str = "") -> str:
    """Return the text of timings or failures; `samples` is the column that has those of a timing.

    In place of a column's name it may be the text of none, `[]`.
    """
    parts = []
    for row in rows:
        fields = {"config": row["config"], **{name: _text(row[name]) for name in names}}
        if samples:
            fields["samples_us"] = row.get(samples, samples)
        parts.append(_object(fields))
    return f"[{','.join(parts)}]"


def _text(value: Any) -> str:
    return repr(value) if type(value) is float else canonical(value)  # the same, and faster


def handles(connection: Connection, table: Table, condition: ColumnElement[bool]) -> list[Handle]:
    """List the rows of `keys` or `predictions` that match, by kernel, device and digest."""
    number = table.c.id if table is keys else literal(0)
    query = select(table.c.kernel, table.c.device, table.c.digest, number.label("id"))
    rows = in_order(connection.execute(query.where(condition)))
    return [Handle(row.id, str(row.digest)) for row in rows]


def held(table: Table, batch: Sequence[Handle]) -> ColumnElement[bool]:
    """Return the condition for the rows of some handles, and for what has replaced them."""
    same = digests(table, (one.digest for one in batch))
    return or_(table.c.id.in_([one.id for one in batch]), same) if table is keys else same


def digests(table: Table, names: Iterable[str]) -> ColumnElement[bool]:
    """Return the condition for the rows of some digests; a damaged one is none."""
    return table.c.digest.in_([name for name in names if name.isascii()])


def fetch(connection: Connection, condition: ColumnElement[bool]) -> list[RecordRows]:
    """Read the rows of the records that match, at most some hundreds; `parse` reads them."""
    rows = _selected(select(keys), connection, condition)
    owners = [row.id for row in rows]
    timed, failed = (_by_owner(connection, table, owners) for table in (timings, failures))
    return [RecordRows(row, timed.get(row.id, ()), failed.get(row.id, ())) for row in rows]


def _selected(
    query: Select[Any], connection: Connection, condition: ColumnElement[bool]
) -> list[Row[Any]]:
    return in_order(connection.execute(query.where(condition)))


def _by_owner(
    connection: Connection, table: Table, owners: Sequence[int]
) -> dict[int, list[Row[Any]]]:
    query = select(table).where(table.c.key_id.in_(owners))
    children = connection.execute(query.order_by(table.c.key_id, table.c.position))
    return {key_id: list(group) for key_id, group in groupby(children, attrgetter("key_id"))}


def parse(record: RecordRows, *, samples: bool = True) -> LoadedRow[TuneRecord]:
    """Check a record's rows against digest and seal, and read them; outside of transactions.

    Args:
        record: its rows.
        samples: whether to read the samples of timings, which are most of a record.
    """
    return loaded(record.row, lambda row: _record(row, record, samples=samples))


def _record(row: Row[Any], record: RecordRows, *, samples: bool) -> TuneRecord:
    columns, timed = row._asdict(), [one._asdict() for one in record.timed]
    failed = _list((one._asdict() for one in record.failed), _FAILURE)
    fields = {**codec.head_fields(columns), "failures": failed}
    text = _object({**fields, "measurements": _list(timed, _TIMES, "samples")})
    _check(row, columns, row.seal, text)
    if not samples:
        text = _object({**fields, "measurements": _list(timed, _TIMES, "[]")})
    return codec.record_from_json(json_codec.json_of(text, "row"), "row")


def _check(row: Row[Any], columns: Mapping[str, Any], seal: Any, sealed: str) -> None:
    """Check the text that a row is sealed by, and its key.

    Raises:
        InputError: a value has changed since they were written.
    """
    if not sealed.isascii() or seal != digest(sealed):
        raise InputError("its values do not match its seal")
    if row.digest != digest(codec.key_text(columns)):
        raise InputError("its key does not match its digest")


def parse_head(row: Row[Any]) -> LoadedRow[codec.Head]:
    """Check a row of `keys` against digest and seal, and read key, winner and provenance."""
    return loaded(row, _checked_head)


def _checked_head(row: Row[Any]) -> codec.Head:
    columns = row._asdict()
    _check(row, columns, row.head, _head(columns, row.seal))
    return codec.head_of(columns, "row")


def _count(table: Table) -> Any:
    return select(func.count()).where(table.c.key_id == keys.c.id).scalar_subquery()


_WON: Final = and_(timings.c.key_id == keys.c.id, timings.c.config == keys.c.winner)
_SUMMARY: Final[Select[Any]] = select(
    keys,
    _count(timings).label("timed"),
    _count(failures).label("failed"),
    select(timings.c.median_us).where(_WON).limit(1).scalar_subquery().label("median_us"),
)


def parse_summary(row: Row[Any]) -> LoadedRow[RecordSummary]:
    """Check and read a row of `keys` with the counts of its timings."""
    return loaded(row, _summary)


def _summary(row: Row[Any]) -> RecordSummary:
    columns = row._asdict()
    _check(row, columns, row.head, _head(columns, row.seal))
    value = codec.columns_to_json(columns, "row")
    key = codec.key_from_json(value["key"], "row.key")
    winner = codec.config_from_json(value["winner"], "row.winner")
    return RecordSummary(row.digest, key, winner, row.date, row.timed, row.failed, row.median_us)


@dataclass(frozen=True)
class Reading(Generic[_T]):
    """A way to read rows of `keys` or `predictions`.

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

    def read(self, condition: ColumnElement[bool], connection: Connection) -> Sequence[Any]:
        """Read the rows that match, as `fetch` does."""
        return self.fetch(connection, condition)


WHOLE: Final = Reading(keys, fetch, parse, BATCH)
UNSAMPLED: Final = Reading(keys, fetch, partial(parse, samples=False), BATCH)
HEADS: Final = Reading(keys, partial(_selected, select(keys)), parse_head, MANY)
SUMMARIES: Final = Reading(keys, partial(_selected, _SUMMARY), parse_summary, MANY)
PREDICTIONS: Final = Reading(
    predictions, partial(_selected, select(predictions)), parse_prediction, MANY
)


def valid(connection: Connection, key: TuneKey, now: Provenance) -> LoadedRow[TuneRecord] | None:
    """Load the row of a key's record where it is valid for `now`; else return None."""
    condition = and_(
        keys.c.digest == codec.key_digest(key),
        keys.c.source == now.source,
        keys.c.space == now.space,
    )
    found = map(parse, fetch(connection, condition))
    return next((r for r in found if r.value and not differences(r.value.provenance, now)), None)


def find_file_damage(connection: Connection) -> list[StoreFinding]:
    """List what is wrong with an SQLite file as SQLite sees it, and with its records' timings."""
    problems = []
    if connection.dialect.name == "sqlite":
        unlimited(connection)
        texts = connection.exec_driver_sql("PRAGMA integrity_check").scalars()
        problems = [" ".join(str(text).split()) for text in texts if text != "ok"]
    if orphans := _count_orphans(connection):
        problems.append(f"{orphans} timings or failures belong to no record")
    return [StoreFinding("file", problem) for problem in problems]


def _count_orphans(connection: Connection) -> int:
    known = select(keys.c.id)
    counts = (
        select(func.count()).select_from(table).where(table.c.key_id.not_in(known))
        for table in (timings, failures)
    )
    return sum(connection.execute(count).scalar_one() for count in counts)


def finding(loaded: LoadedRow[TuneRecord]) -> StoreFinding | None:
    """Return what is wrong with a record; None if nothing is."""
    problem = loaded.problem
    if loaded.value is not None and not codec.winner_is_timed(loaded.value):
        problem = "its winner is not among its measurements"
    return StoreFinding(loaded.place, problem) if problem else None


def find_damage(connection: Connection, *, is_sound: bool) -> list[StoreFinding]:
    """List what is wrong with rows of what has no record; with no limit if the file is sound."""
    if is_sound:
        unlimited(connection)
    return [
        *find_damaged(connection, predictions, parse_prediction),
        *find_damaged(connection, trials, parse_trial),
        *find_damaged(connection, examples, parse_examples),
    ]
