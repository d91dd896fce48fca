"""Tune records as rows of `keys`, `timings` and `failures`: written, read, checked and listed.

What a row of `keys` is sealed by is a digest of text. Its columns are parts of that text, so that
a seal is checked before anything is parsed, and without the samples of timings that nobody needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
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
from asmtune.base.fingerprint import canonical, digest
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.store import codec
from asmtune.store.lookup import RecordSummary, StoreFinding, differences
from asmtune.store.neighbours import KeyIndex
from asmtune.store.tables import (
    LoadedRow,
    delete_rows,
    failures,
    keys,
    loaded,
    of_key,
    parse_prediction,
    parse_trial,
    predictions,
    store_name,
    timings,
    trials,
)
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
    columns = codec.head_columns(record)
    fields = codec.head_fields(columns)
    texts = [_timing(**row) for row in timed], [_failure(**row) for row in failed]
    seal = digest(_whole(fields, *texts))
    head = codec.head_seal(fields, seal)
    return Prepared({**columns, "seal": seal, "head": head}, timed, failed)


def prepared_batches(
    saved: Iterable[TuneRecord], *, checked: bool = False
) -> Iterator[list[Prepared]]:
    """Yield records in batches as `prepare` makes them ready; raises as it does."""
    left, prepared = iter(saved), partial(prepare, checked=checked)
    while batch := [*map(prepared, islice(left, BATCH))]:
        yield batch


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
    fields = _fields(row._asdict())
    failed = [_failure(*one) for one in record.failed]
    text = _whole(fields, [_timing(*one) for one in record.timed], failed)
    codec.check_seal(row.seal, text)
    if not samples:
        text = _whole(fields, [_timing(*(*one[:-1], "[]")) for one in record.timed], failed)
    return codec.record_from_json(json_codec.json_of(text, "row"), "row")


def _fields(columns: Mapping[str, Any]) -> dict[str, str]:
    return codec.sealed_fields(columns, columns["head"], columns["seal"])


def _head(row: Row[Any]) -> TuneRecord:
    return codec.read_head(_fields(row._asdict()))


def _count(table: Table) -> Any:
    return select(func.count()).where(table.c.key_id == keys.c.id).scalar_subquery()


_WON: Final = and_(timings.c.key_id == keys.c.id, timings.c.config == keys.c.winner)
_SUMMARY: Final = _KEYS.add_columns(
    _count(timings).label("timed"),
    _count(failures).label("failed"),
    select(timings.c.median_us).where(_WON).limit(1).scalar_subquery().label("median_us"),
)


def _summary(row: Row[Any]) -> RecordSummary:
    columns = dict(zip(_NAMES, row, strict=False))  # the counts follow
    _fields(columns)
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


def _of_table(table: Table, parse: Callable[[Row[Any]], LoadedRow[_T]]) -> Reading[_T]:
    return Reading(table, partial(_selected, _in_order(select(table), table)), parse, MANY)


WHOLE: Final = Reading(keys, fetch, parse, BATCH)
UNSAMPLED: Final = Reading(keys, fetch, partial(parse, samples=False), BATCH)
HEADS: Final = _of_table(keys, partial(loaded, parse=_head))
SUMMARIES: Final = Reading(
    keys, partial(_selected, _SUMMARY), partial(loaded, parse=_summary), MANY
)
PREDICTIONS: Final = _of_table(predictions, parse_prediction)
TRIALS: Final = _of_table(trials, parse_trial)


def valid(connection: Connection, key: TuneKey, now: Provenance) -> LoadedRow[TuneRecord] | None:
    """Load the row of a key's record where it is valid for `now`; else return None."""
    made = keys.c.source == now.source, keys.c.space == now.space
    condition = and_(of_key(keys, key), *made)
    found = map(parse, fetch(connection, condition))
    return next((r for r in found if r.value and not differences(r.value.provenance, now)), None)


_INDEXED: Final = ("id", "shape", "dtypes", "device", "source", "triton")


class Change(NamedTuple):
    """An index without what is gone, and rows that it lacks, at most `MANY`."""

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
    newest = int(index.ids.max(initial=0))
    newer = read.where(own, keys.c.id > newest).order_by(keys.c.id).limit(MANY)
    if rows := connection.execute(newer).all():
        return Change(index, rows)
    # Deleted, or added by a transaction of a server that ended after a later one.
    present = np.array(connection.execute(select(keys.c.id).where(own)).scalars().all(), np.int64)
    late = np.setdiff1d(present, index.ids)[:MANY].tolist()
    return Change(index.only(present), connection.execute(read.where(keys.c.id.in_(late))).all())


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


def finding(loaded: LoadedRow[Any]) -> StoreFinding | None:
    """Return what is wrong with a row; None if nothing is."""
    problem, value = loaded.problem, loaded.value
    if isinstance(value, TuneRecord) and not codec.winner_is_timed(value):
        problem = "its winner is not among its measurements"
    return StoreFinding(loaded.place, problem) if problem else None
