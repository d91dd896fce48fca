"""Tune records as rows of `keys`, `timings` and `failures`: written, read, checked and listed.

What a row of `keys` is sealed by is a digest of text. Its columns are parts of that text, so that
a seal is checked before anything is parsed, and without the samples of timings that nobody needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

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
from asmtune.store.rows import (
    LoadedRow,
    delete_rows,
    find_damaged,
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


@dataclass(frozen=True)
class RecordRows:
    """The rows of a record, as they were read; of its outcomes what follows the position."""

    row: Row[Any]
    timed: Sequence[tuple[Any, ...]]
    failed: Sequence[tuple[Any, ...]]


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
    texts = [_timing(**row) for row in timed], [_failure(**row) for row in failed]
    seal = digest(_whole(fields, *texts))
    return Prepared({**columns, "seal": seal, "head": digest(_head(fields, seal))}, timed, failed)


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


def _head(fields: Mapping[str, str], seal: Any) -> str:
    of_key, made, winner = fields["key"], fields["provenance"], fields["winner"]
    return f'[{{"key":{of_key},"provenance":{made},"winner":{winner}}},{canonical(seal)}]'


def _whole(fields: Mapping[str, str], timed: Sequence[str], failed: Sequence[str]) -> str:
    return (
        f'{{"failures":[{",".join(failed)}],"key":{fields["key"]},'
        f'"measurements":[{",".join(timed)}],'
        f'"provenance":{fields["provenance"]},"winner":{fields["winner"]}}}'
    )


def _timing(config: Any, median_us: Any, p20_us: Any, p80_us: Any, samples: Any) -> str:
    return (
        f'{{"config":{config},"median_us":{_text(median_us)},"p20_us":{_text(p20_us)},'
        f'"p80_us":{_text(p80_us)},"samples_us":{samples}}}'
    )


def _failure(config: Any, stage: Any, kind: Any, detail: Any) -> str:
    texts = f'"detail":{_text(detail)},"kind":{_text(kind)},"stage":{_text(stage)}'
    return f'{{"config":{config},{texts}}}'


def _text(value: Any) -> str:
    return repr(value) if type(value) is float else canonical(value)  # the same, and faster


def handles(
    connection: Connection, table: Table, condition: ColumnElement[bool]
) -> list[tuple[Any, ...]]:
    """List digest, and id if there is one, of the rows of `keys` or `predictions` that match.

    A row's digest finds what has been saved in its place meanwhile.
    """
    columns = [table.c.digest, *([table.c.id] if table is keys else [])]
    rows = _selected(_in_order(select(*columns), table), connection, condition)
    return [tuple(row) for row in rows]  # plain ones, which Python's collector leaves alone


def _in_order(query: Select[Any], table: Table) -> Select[Any]:
    """Sort by kernel and device, then as saved: rows that are read together lie together."""
    return query.order_by(table.c.kernel, table.c.device, *table.primary_key)


def digests(table: Table, names: Iterable[str]) -> ColumnElement[bool]:
    """Return the condition for the rows of some digests; a damaged one is none."""
    return table.c.digest.in_([name for name in map(str, names) if name.isascii()])


_KEYS: Final = _in_order(select(keys), keys)
_NAMES: Final = tuple(keys.c.keys())


def fetch(connection: Connection, condition: ColumnElement[bool]) -> list[RecordRows]:
    """Read the rows of the records that match, at most some hundreds; `parse` reads them."""
    rows = _selected(_KEYS, connection, condition)
    owners = [row.id for row in rows]
    timed, failed = (_by_owner(connection, table, owners) for table in (timings, failures))
    return [RecordRows(row, timed.get(row.id, ()), failed.get(row.id, ())) for row in rows]


def _selected(
    query: Select[Any], connection: Connection, condition: ColumnElement[bool]
) -> Sequence[Row[Any]]:
    return connection.execute(query.where(condition)).all()


def _by_owner(
    connection: Connection, table: Table, owners: Sequence[int]
) -> dict[int, list[tuple[Any, ...]]]:
    query = select(table).where(table.c.key_id.in_(owners))
    children = connection.execute(query.order_by(table.c.key_id, table.c.position)).all()
    groups = groupby(map(tuple, children), itemgetter(0))
    return {key_id: [row[2:] for row in group] for key_id, group in groups}


def parse(record: RecordRows, *, samples: bool = True) -> LoadedRow[TuneRecord]:
    """Check a record's rows against digest and seal, and read them; outside of transactions.

    Args:
        record: its rows.
        samples: whether to read the samples of timings, which are most of a record.
    """
    return loaded(record.row, lambda row: _record(row, record, samples=samples))


def _record(row: Row[Any], record: RecordRows, *, samples: bool) -> TuneRecord:
    _, fields = _sealed_head(row)
    failed = [_failure(*one) for one in record.failed]
    text = _whole(fields, [_timing(*one) for one in record.timed], failed)
    _check(row.seal, text)
    if not samples:
        text = _whole(fields, [_timing(*(*one[:-1], "[]")) for one in record.timed], failed)
    return codec.record_from_json(json_codec.json_of(text, "row"), "row")


def _sealed_head(row: Row[Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the columns of a row of `keys` and the texts of its fields, which are checked.

    Raises:
        InputError: a value has changed since they were written.
    """
    columns = dict(zip(_NAMES, row, strict=False))  # a summary's row goes on
    fields = codec.head_fields(columns)
    _check(columns["head"], _head(fields, columns["seal"]))
    if columns["digest"] != digest(fields["key"]):
        raise InputError("its key does not match its digest")
    return columns, fields


def _check(seal: Any, sealed: str) -> None:
    if not sealed.isascii() or seal != digest(sealed):
        raise InputError("its values do not match its seal")


def _parse_head(row: Row[Any]) -> LoadedRow[codec.Head]:
    return loaded(row, lambda row: codec.head_of(_sealed_head(row)[0], "row"))


def _count(table: Table) -> Any:
    return select(func.count()).where(table.c.key_id == keys.c.id).scalar_subquery()


_WON: Final = and_(timings.c.key_id == keys.c.id, timings.c.config == keys.c.winner)
_SUMMARY: Final = _KEYS.add_columns(
    _count(timings).label("timed"),
    _count(failures).label("failed"),
    select(timings.c.median_us).where(_WON).limit(1).scalar_subquery().label("median_us"),
)


def _summary(row: Row[Any]) -> RecordSummary:
    columns, _ = _sealed_head(row)
    kernel, device = columns["kernel"], columns["device"]
    shape = json_codec.scalars_of(json_codec.json_of(columns["shape"], "row.shape"), "row.shape")
    dtypes = _key(kernel, columns["dtypes"], device).dtypes
    winner = _winner(columns["winner"])
    key = (columns["digest"], kernel, shape, dtypes, device)
    return RecordSummary(*key, winner, columns["date"], *row[-3:])


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

    def read(self, batch: Sequence[tuple[Any, ...]], connection: Connection) -> Sequence[Any]:
        """Read the rows of some handles, and what has been saved in the place of one."""
        names, *ids = zip(*batch, strict=True)
        condition = digests(self.table, names)
        if ids:
            own = self.table.c.id.in_(ids[0])
            found = self.fetch(connection, own)
            if len(found) == len(batch):
                return found
            condition = or_(own, condition)
        return self.fetch(connection, condition)


WHOLE: Final = Reading(keys, fetch, parse, BATCH)
UNSAMPLED: Final = Reading(keys, fetch, partial(parse, samples=False), BATCH)
HEADS: Final = Reading(keys, partial(_selected, _KEYS), _parse_head, MANY)
SUMMARIES: Final = Reading(
    keys, partial(_selected, _SUMMARY), partial(loaded, parse=_summary), MANY
)
_PREDICTED: Final = _in_order(select(predictions), predictions)
PREDICTIONS: Final = Reading(predictions, partial(_selected, _PREDICTED), parse_prediction, MANY)


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
