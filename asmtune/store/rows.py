"""Tune records, outcomes of unfinished runs and predictions as rows of the store's tables.

Each row carries the digest of its key and a seal: a digest of all its values. A row is read
back only where both match, so that a changed digit cannot become another config. A damaged
row is returned with its problem, and the store decides what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, delete, insert, select, true

from asmtune.base import json_codec
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical, digest
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey
from asmtune.store import codec
from asmtune.store.lookup import (
    DIGITS_SHOWN,
    StoredExamples,
    StoredPrediction,
    StoredTrial,
    StoreFinding,
    TrialOutcome,
)
from asmtune.store.tables import examples, failures, keys, predictions, timings, trials

_T = TypeVar("_T")

MOST_TRIALS: Final = 10_000
"""Outcomes that one transaction reads: of a key more than any run has."""

_CHUNK: Final = 500  # ids in one statement; SQLite takes some 32,000


class LoadedRow(NamedTuple, Generic[_T]):
    """The value that a row holds, or the reason why it cannot be used.

    Attributes:
        row: the row.
        value: None where the row is damaged.
        problem: why it is damaged; empty otherwise.
    """

    row: Row[Any]
    value: _T | None
    problem: str = ""

    @property
    def id(self) -> Any:
        """Return the value of the table's primary key."""
        return self.row._mapping.get("id", self.row.digest)  # `predictions` is keyed by its digest

    @property
    def digits(self) -> str:
        """Return the first digits of the key's digest as the row has it, for messages."""
        return json_codec.printable(str(self.row.digest))[:DIGITS_SHOWN]

    @property
    def place(self) -> str:
        """Name the row for messages: digits of its digest, and its kernel."""
        return f"{self.digits} {json_codec.printable(str(self.row.kernel))}"


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


def delete_some(connection: Connection, table: Table, condition: ColumnElement[bool]) -> int:
    """Delete as `delete_rows` at most `_CHUNK` of the rows; return how many."""
    ids = connection.execute(select(table.c.id).where(condition).limit(_CHUNK)).scalars().all()
    return delete_rows(connection, table, table.c.id.in_(ids))


def find_damaged(
    connection: Connection, table: Table, parse: Callable[[Row[Any]], LoadedRow[Any]]
) -> list[StoreFinding]:
    """List what is wrong with each row of a table."""
    found = connection.execute(select(table), execution_options={"yield_per": _CHUNK})
    damaged = (row for row in map(parse, found) if row.value is None)
    return [StoreFinding(row.place, row.problem) for row in damaged]


def delete_key(connection: Connection, table: Table, key: TuneKey) -> None:
    """Delete a key's rows."""
    delete_rows(connection, table, table.c.digest == codec.key_digest(key))


def delete_trials(connection: Connection, ids: Sequence[int]) -> None:
    """Delete rows of `trials` by their ids."""
    for start in range(0, len(ids), _CHUNK):
        delete_rows(connection, trials, trials.c.id.in_(ids[start : start + _CHUNK]))


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
    columns = key_columns(codec.key_from_json(codec.key_to_json(key), f"{where}.key"))
    for name in ("source", "triton", "date"):
        columns[name] = json_codec.text_of(getattr(provenance, name), f"{where}.{name}")
    values = [codec.measurement_to_json(measurement) for measurement in measurements]
    values += [codec.failure_to_json(config, failure) for config, failure in failed]
    rows = [{**columns, "outcome": _outcome_text(value, where)} for value in values]
    return [{**row, "seal": _seal(row)} for row in rows]


def put_trials(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows that `trial_rows` has made, at least one."""
    connection.execute(insert(trials), list(rows))


def fetch_trials(
    connection: Connection, condition: ColumnElement[bool], after: int = 0
) -> list[Row[Any]]:
    """Read the rows of `trials` that match, oldest first, at most `MOST_TRIALS` after an id."""
    query = select(trials).where(condition, trials.c.id > after).order_by(trials.c.id)
    return list(connection.execute(query.limit(MOST_TRIALS)))


def parse_trial(row: Row[Any]) -> LoadedRow[StoredTrial]:
    """Check and read a row of `trials`."""
    return loaded(row, _trial)


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
        **key_columns(head.key),
        "winner": canonical(value["winner"]),
        "predicted_us": us,
        **value["provenance"],
        "seal": codec.head_seal(head, us),
    }


def put_prediction(connection: Connection, row: Mapping[str, Any]) -> None:
    """Write a row that `prediction_row` has made, in place of that of the same key."""
    delete_rows(connection, predictions, predictions.c.digest == row["digest"])
    connection.execute(insert(predictions).values(row))


def parse_prediction(row: Row[Any]) -> LoadedRow[StoredPrediction]:
    """Check and read a row of `predictions`."""
    return loaded(row, _prediction)


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
    columns = key_columns(codec.key_from_json(codec.key_to_json(key), f"{where}.key"))
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


def fetch_examples(connection: Connection, *conditions: ColumnElement[bool]) -> list[Row[Any]]:
    """Read the newest `MOST_LOADED` rows of `examples` that match each condition."""
    query = select(examples).order_by(examples.c.id.desc()).limit(MOST_LOADED)
    return [row for each in conditions for row in connection.execute(query.where(each))]


def parse_examples(row: Row[Any]) -> LoadedRow[StoredExamples]:
    """Check and read a row of `examples`."""
    return loaded(row, _examples)


def key_columns(key: TuneKey) -> dict[str, Any]:
    """Return the columns that tell a row's key."""
    return {
        "digest": codec.key_digest(key),
        "kernel": key.kernel,
        "shape": canonical(dict(key.shape)),
        "dtypes": canonical(dict(key.dtypes)),
        "device": key.device,
    }


def _seal(value: Any) -> str:
    return digest(canonical(value))


def loaded(row: Row[Any], parse: Callable[[Row[Any]], _T]) -> LoadedRow[_T]:
    """Parse a row; what is wrong with it becomes its problem."""
    try:
        return LoadedRow(row, parse(row))
    except InputError as error:
        return LoadedRow(row, None, str(error))


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
