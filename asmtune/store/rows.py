"""Tune records, outcomes of unfinished runs and predictions as rows of the store's tables.

Each row carries the digest of its key and a seal: a digest of all its values. A row is read
back only where both match, so that a changed digit cannot become another config. A damaged
row is returned with its problem, and the store decides what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, delete, insert, select, true

from asmtune.base import json_codec
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical, digest
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.store import codec
from asmtune.store.lookup import (
    DIGITS_SHOWN,
    StoredExamples,
    StoredPrediction,
    StoredTrial,
    StoreFinding,
    TrialOutcome,
    differences,
)
from asmtune.store.tables import examples, failures, keys, predictions, timings, trials

_T = TypeVar("_T")

_TIMES: Final = ("median_us", "p20_us", "p80_us")
_FAILURE: Final = ("stage", "kind", "detail")

_CHUNK: Final = 500  # ids in one statement; SQLite takes some 32,000


@dataclass(frozen=True)
class LoadedRow(Generic[_T]):
    """The value that a row holds, or the reason why it cannot be used.

    Attributes:
        id: value of the table's primary key.
        digest: digest of the key as the row has it, printable.
        kernel: the row's kernel, printable.
        value: None where the row is damaged.
        problem: why it is damaged; empty otherwise.
    """

    id: Any
    digest: str
    kernel: str
    value: _T | None
    problem: str = ""

    @property
    def place(self) -> str:
        """Name the row for messages: digits of its digest, and its kernel."""
        return f"{self.digest[:DIGITS_SHOWN]} {self.kernel}"


def matching(table: Table, kernel: str | None, device: str | None) -> ColumnElement[bool]:
    """Return the condition for the rows of a kernel and a device; None matches any."""
    pairs = ((table.c.kernel, kernel), (table.c.device, device))
    return and_(true(), *(column == wanted for column, wanted in pairs if wanted is not None))


def delete_rows(connection: Connection, table: Table, condition: ColumnElement[bool]) -> int:
    """Delete the rows that match, with the timings and failures of records; return how many."""
    if table is keys:
        owners = select(keys.c.id).where(condition)
        for child in (timings, failures):
            connection.execute(delete(child).where(child.c.key_id.in_(owners)))
    return connection.execute(delete(table).where(condition)).rowcount


def delete_key(connection: Connection, table: Table, key: TuneKey) -> None:
    """Delete a key's rows."""
    delete_rows(connection, table, table.c.digest == codec.key_digest(key))


def delete_trials(connection: Connection, ids: Sequence[int]) -> None:
    """Delete rows of `trials` by their ids."""
    for start in range(0, len(ids), _CHUNK):
        delete_rows(connection, trials, trials.c.id.in_(ids[start : start + _CHUNK]))


def put_record(connection: Connection, record: TuneRecord) -> None:
    """Write a record's rows, in place of those of the same key."""
    value = codec.record_to_json(record)
    seal = _seal(value)
    delete_key(connection, keys, record.key)
    row = {
        **_key_columns(record.key),
        "winner": canonical(value["winner"]),
        **value["provenance"],
        "seal": seal,
        "head": codec.head_seal(codec.Head(record.key, record.winner, record.provenance), seal),
    }
    inserted = connection.execute(insert(keys).values(row)).inserted_primary_key
    key_id = inserted[0] if inserted else None
    _put_children(connection, key_id, timings, value["measurements"])
    _put_children(connection, key_id, failures, value["failures"])


def load_records(
    connection: Connection, condition: ColumnElement[bool]
) -> list[LoadedRow[TuneRecord]]:
    """Load the records that match, by kernel, device and digest."""
    rows = _sorted_rows(connection, keys, condition)
    timed = _children_by_key(connection, timings, condition)
    failed = _children_by_key(connection, failures, condition)

    def parse(row: Row[Any]) -> TuneRecord:
        return _record(row, timed.get(row.id, ()), failed.get(row.id, ()))

    return [_load(row, parse) for row in rows]


def valid_record(
    connection: Connection, key: TuneKey, now: Provenance
) -> LoadedRow[TuneRecord] | None:
    """Load the row of a key's record where it is valid for `now`; else return None."""
    condition = and_(
        keys.c.digest == codec.key_digest(key),
        keys.c.source == now.source,
        keys.c.space == now.space,
    )
    loaded = load_records(connection, condition)
    return next((r for r in loaded if r.value and not differences(r.value.provenance, now)), None)


def trial_rows(
    key: TuneKey,
    provenance: Provenance,
    measurements: Iterable[Measurement],
    failed: Iterable[tuple[Config, Failure]],
) -> list[dict[str, Any]]:
    """Make rows of `trials` for outcomes of a key.

    Raises:
        InputError: a value cannot be stored; the message names it.
    """
    where = f"{key.kernel}: trial"
    columns = _key_columns(codec.key_from_json(codec.key_to_json(key), f"{where}.key"))
    for name in ("source", "triton", "date"):
        columns[name] = json_codec.text_of(getattr(provenance, name), f"{where}.{name}")
    values = [codec.measurement_to_json(measurement) for measurement in measurements]
    values += [codec.failure_to_json(config, failure) for config, failure in failed]
    rows = [{**columns, "outcome": _outcome_text(value, where)} for value in values]
    return [{**row, "seal": _seal(row)} for row in rows]


def put_trials(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows that `trial_rows` has made, at least one."""
    connection.execute(insert(trials), list(rows))


def load_trials(
    connection: Connection, condition: ColumnElement[bool]
) -> list[LoadedRow[StoredTrial]]:
    """Load the rows of `trials` that match, oldest first."""
    query = select(trials).where(condition).order_by(trials.c.id)
    return [_load(row, _trial) for row in connection.execute(query)]


def prediction_row(prediction: StoredPrediction) -> dict[str, Any]:
    """Make a row of `predictions`.

    Raises:
        InputError: a value cannot be stored; the message names it.
    """
    where = f"{prediction.key.kernel}: prediction"
    value = codec.head_to_json(codec.Head(prediction.key, prediction.config, prediction.provenance))
    head = codec.head_from_json(value, where)
    us = prediction.predicted_us
    if us is not None:
        us = json_codec.time_of(us, f"{where}.predicted_us")
    return {
        **_key_columns(head.key),
        "winner": canonical(value["winner"]),
        "predicted_us": us,
        **value["provenance"],
        "seal": codec.head_seal(head, us),
    }


def put_prediction(connection: Connection, row: Mapping[str, Any]) -> None:
    """Write a row that `prediction_row` has made, in place of that of the same key."""
    delete_rows(connection, predictions, predictions.c.digest == row["digest"])
    connection.execute(insert(predictions).values(row))


def load_predictions(
    connection: Connection, condition: ColumnElement[bool]
) -> list[LoadedRow[StoredPrediction]]:
    """Load the rows of `predictions` that match, by kernel, device and digest."""
    return [_load(row, _prediction) for row in _sorted_rows(connection, predictions, condition)]


MOST_OF_A_KEY: Final = 4
MOST_EXAMPLES: Final = 400
"""Runs whose training rows are kept, of one key and in all: some 10 kB each."""

MOST_LOADED: Final = 48
"""Runs that are loaded, of a kernel and of the others: a millisecond each."""


def examples_row(key: TuneKey, rows: str) -> dict[str, Any]:
    """Make a row of `examples`.

    Raises:
        InputError: a value cannot be stored; the message names it.
    """
    where = f"{key.kernel}: training rows"
    columns = _key_columns(codec.key_from_json(codec.key_to_json(key), f"{where}.key"))
    columns["rows"] = json_codec.text_of(rows, f"{where}.rows")
    return {**columns, "seal": _seal(columns)}


def put_examples(connection: Connection, row: Mapping[str, Any]) -> None:
    """Add a row that `examples_row` has made; delete the oldest beyond the limits."""
    connection.execute(insert(examples).values(row))
    ids = select(examples.c.id).order_by(examples.c.id.desc())
    of_key = ids.where(examples.c.digest == row["digest"])
    for query, most in ((of_key, MOST_OF_A_KEY), (ids, MOST_EXAMPLES)):
        old = connection.execute(query.offset(most).limit(_CHUNK)).scalars().all()
        if old:
            delete_rows(connection, examples, examples.c.id.in_(old))


def load_examples(
    connection: Connection, *conditions: ColumnElement[bool], most: int | None = None
) -> list[LoadedRow[StoredExamples]]:
    """Load the rows of `examples` that match each condition, at most so many, newest first."""
    query = select(examples).order_by(examples.c.id.desc()).limit(most)
    found = (row for each in conditions for row in connection.execute(query.where(each)))
    return [_load(row, _examples) for row in found]


def find_damage(connection: Connection) -> list[StoreFinding]:
    """List what is wrong with the file, as SQLite sees it, and with every row."""
    problems = []
    if connection.dialect.name == "sqlite":
        texts = connection.exec_driver_sql("PRAGMA integrity_check").scalars()
        problems += [("file", " ".join(str(text).split())) for text in texts if text != "ok"]
    for loaded in load_records(connection, true()):
        if loaded.value is None:
            problems.append((loaded.place, loaded.problem))
        elif not codec.winner_is_timed(loaded.value):
            problems.append((loaded.place, "its winner is not among its measurements"))
    if orphans := _count_orphans(connection):
        problems.append(("file", f"{orphans} timings or failures belong to no record"))
    for load in (load_predictions, load_trials, load_examples):
        loaded_rows = load(connection, true())
        problems += [(row.place, row.problem) for row in loaded_rows if row.value is None]
    return [StoreFinding(place, problem) for place, problem in problems]


def _key_columns(key: TuneKey) -> dict[str, Any]:
    return {
        "digest": codec.key_digest(key),
        "kernel": key.kernel,
        "shape": canonical(dict(key.shape)),
        "dtypes": canonical(dict(key.dtypes)),
        "device": key.device,
    }


def _seal(value: Any) -> str:
    return digest(canonical(value))


def _sorted_rows(
    connection: Connection, table: Table, condition: ColumnElement[bool]
) -> list[Row[Any]]:
    # Sorted here: databases differ in how they order text.
    return sorted(
        connection.execute(select(table).where(condition)),
        key=lambda row: (str(row.kernel), str(row.device), str(row.digest)),
    )


def _load(row: Row[Any], parse: Callable[[Row[Any]], _T]) -> LoadedRow[_T]:
    value, problem = None, ""
    try:
        value = parse(row)
    except InputError as error:
        problem = str(error)
    shown, kernel = (json_codec.printable(str(text)) for text in (row.digest, row.kernel))
    row_id = row._mapping.get("id", row.digest)  # `predictions` is keyed by its digest
    return LoadedRow(row_id, shown, kernel, value, problem)


def _record(row: Row[Any], timed: Sequence[Row[Any]], failed: Sequence[Row[Any]]) -> TuneRecord:
    record = codec.record_from_json(_record_json(row, timed, failed), "row")
    if codec.key_digest(record.key) != row.digest:
        raise InputError("its key does not match its digest")
    if row.seal != _seal(codec.record_to_json(record)):
        raise InputError("its values do not match its seal")
    return record


def _record_json(row: Row[Any], timed: Sequence[Row[Any]], failed: Sequence[Row[Any]]) -> Any:
    measurements = [_child_json(item, "timing", _TIMES) for item in timed]
    for value, item in zip(measurements, timed, strict=True):
        where = f"timing {item.position}: samples"
        value["samples_us"] = json_codec.json_of(item.samples, where)
    return {
        **codec.columns_to_json(row._asdict(), "row"),
        "measurements": measurements,
        "failures": [_child_json(item, "failure", _FAILURE) for item in failed],
    }


def _child_json(row: Row[Any], kind: str, names: Sequence[str]) -> dict[str, Any]:
    config = json_codec.json_of(row.config, f"{kind} {row.position}: config")
    return {"config": config, **{name: row._mapping[name] for name in names}}


def _sealed_key(row: Row[Any], where: str) -> TuneKey:
    """Return the key of a row whose columns are texts, if they match its seal."""
    columns = {name: value for name, value in row._mapping.items() if name != "id"}
    texts = {name: json_codec.text_of(text, f"{where}.{name}") for name, text in columns.items()}
    named = {
        name: json_codec.json_of(texts[name], f"{where}.{name}") for name in ("shape", "dtypes")
    }
    key = codec.key_from_json({**named, "kernel": row.kernel, "device": row.device}, where)
    if texts.pop("seal") != _seal(texts):
        raise json_codec.fault(where, "its values do not match its seal")
    return key


def _trial(row: Row[Any]) -> StoredTrial:
    outcome = _outcome(json_codec.json_of(row.outcome, "trial.outcome"), "trial")
    return StoredTrial(_sealed_key(row, "trial"), row.source, row.triton, row.date, outcome)


def _examples(row: Row[Any]) -> StoredExamples:
    return StoredExamples(_sealed_key(row, "training rows"), row.rows)


def _outcome(value: Any, where: str) -> TrialOutcome:
    if isinstance(value, dict) and "stage" in value:
        return codec.failure_from_json(value, where)
    return codec.measurement_from_json(value, where)


def _outcome_text(value: Any, where: str) -> str:
    outcome = _outcome(value, where)  # as it will be loaded
    if isinstance(outcome, Measurement):
        return canonical(codec.measurement_to_json(outcome))
    return canonical(codec.failure_to_json(*outcome))


def _prediction(row: Row[Any]) -> StoredPrediction:
    head = codec.head_of(row._asdict(), "prediction")
    if row.digest != codec.key_digest(head.key):
        raise json_codec.fault("prediction", "its key does not match its digest")
    if row.seal != codec.head_seal(head, row.predicted_us):
        raise json_codec.fault("prediction", "its values do not match its seal")
    return StoredPrediction(head.key, head.winner, row.predicted_us, head.provenance)


def _put_children(
    connection: Connection, key_id: Any, table: Table, items: list[dict[str, Any]]
) -> None:
    rows = []
    for position, item in enumerate(items):
        row = {"key_id": key_id, "position": position, **item, "config": canonical(item["config"])}
        if "samples_us" in row:
            row["samples"] = canonical(row.pop("samples_us"))
        rows.append(row)
    if rows:
        connection.execute(insert(table), rows)


def _children_by_key(
    connection: Connection, table: Table, condition: ColumnElement[bool]
) -> dict[int, list[Row[Any]]]:
    owners = select(keys.c.id).where(condition)
    query = select(table).where(table.c.key_id.in_(owners))
    children = connection.execute(query.order_by(table.c.key_id, table.c.position))
    return {key_id: list(group) for key_id, group in groupby(children, attrgetter("key_id"))}


def _count_orphans(connection: Connection) -> int:
    known = select(keys.c.id)
    queries = [select(t.c.key_id).where(t.c.key_id.not_in(known)) for t in (timings, failures)]
    return sum(len(connection.execute(query).all()) for query in queries)
