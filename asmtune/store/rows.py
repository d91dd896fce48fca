"""Rows of the store's tables: checked when they are read, and those of what has no record yet.

Each row carries the digest of its key and a seal: a digest of all its values. A row is read
back only where both match, so that a changed digit cannot become another config. A damaged
row is returned with its problem, and the store decides what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, delete, select, true

from asmtune.base import json_codec
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical, digest
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.store import codec
from asmtune.store.lookup import DIGITS_SHOWN, StoredPrediction, StoredTrial, TrialOutcome
from asmtune.store.tables import failures, keys, timings

_T = TypeVar("_T")

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
    def place(self) -> str:
        """Name the row for messages: the first digits of its digest, and its kernel."""
        digits = json_codec.printable(str(self.row.digest))[:DIGITS_SHOWN]
        return f"{digits} {json_codec.printable(str(self.row.kernel))}"


def loaded(row: Row[Any], parse: Callable[[Row[Any]], _T]) -> LoadedRow[_T]:
    """Parse a row; what is wrong with it becomes its problem."""
    try:
        return LoadedRow(row, parse(row))
    except InputError as error:
        return LoadedRow(row, None, str(error))


def matching(table: Table, kernel: str | None, device: str | None) -> ColumnElement[bool]:
    """Return the condition for the rows of a kernel and a device; None matches any."""
    pairs = ((table.c.kernel, kernel), (table.c.device, device))
    return and_(true(), *(column == wanted for column, wanted in pairs if wanted is not None))


def of_key(table: Table, key: TuneKey) -> ColumnElement[bool]:
    """Return the condition for the rows of a key."""
    return table.c.digest == codec.key_digest(key)


def delete_rows(connection: Connection, table: Table, condition: ColumnElement[bool]) -> int:
    """Delete the rows that match, with the timings and failures of records; return how many."""
    if table is keys:
        owners = select(keys.c.id).where(condition)
        for child in (timings, failures):
            connection.execute(delete(child).where(child.c.key_id.in_(owners)))
    return connection.execute(delete(table).where(condition)).rowcount


def delete_some(connection: Connection, condition: ColumnElement[bool]) -> int:
    """Delete at most `_CHUNK` of the records that match; return how many."""
    ids = connection.execute(select(keys.c.id).where(condition).limit(_CHUNK)).scalars().all()
    return delete_rows(connection, keys, keys.c.id.in_(ids))


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
    columns = codec.key_columns(codec.key_from_json(codec.key_to_json(key), f"{where}.key"))
    for name in ("source", "triton", "date"):
        columns[name] = json_codec.text_of(getattr(provenance, name), f"{where}.{name}")
    values = [codec.measurement_to_json(measurement) for measurement in measurements]
    values += [codec.failure_to_json(config, failure) for config, failure in failed]
    for value in values:
        _outcome(value, where)  # as it will be read
    rows = [{**columns, "outcome": canonical(value)} for value in values]
    return [{**row, "seal": digest(canonical(row))} for row in rows]


def parse_trial(row: Row[Any]) -> LoadedRow[StoredTrial]:
    """Check and read a row of `trials`."""
    return loaded(row, _trial)


def _trial(row: Row[Any]) -> StoredTrial:
    columns = {name: value for name, value in row._mapping.items() if name != "id"}
    texts = {name: json_codec.text_of(text, f"trial.{name}") for name, text in columns.items()}
    codec.check_seal(texts.pop("seal"), canonical(texts))
    named = {name: json_codec.json_of(texts[name], name) for name in ("shape", "dtypes")}
    key = codec.key_from_json({**named, "kernel": row.kernel, "device": row.device}, "trial")
    outcome = _outcome(json_codec.json_of(row.outcome, "trial.outcome"), "trial")
    return StoredTrial(key, row.source, row.triton, row.date, outcome)


def _outcome(value: Any, where: str) -> TrialOutcome:
    if isinstance(value, dict) and "stage" in value:
        return codec.failure_from_json(value, where)
    return codec.measurement_from_json(value, where)


def prediction_row(prediction: StoredPrediction) -> dict[str, Any]:
    """Make a row of `predictions`.

    Raises:
        InputError: a value cannot be stored; the message names it.
    """
    where = f"{prediction.key.kernel}: prediction"
    made = TuneRecord(prediction.key, prediction.config, (), prediction.provenance)
    columns = codec.head_columns(codec.record_from_json(codec.record_to_json(made), where))
    us = prediction.predicted_us
    if us is not None:
        us = json_codec.time_of(us, f"{where}.predicted_us")
    seal = codec.head_seal(codec.head_fields(columns), us)
    return {**columns, "predicted_us": us, "seal": seal}


def parse_prediction(row: Row[Any]) -> LoadedRow[StoredPrediction]:
    """Check and read a row of `predictions`."""
    return loaded(row, _prediction)


def _prediction(row: Row[Any]) -> StoredPrediction:
    head = codec.read_head(codec.sealed_fields(row._asdict(), row.seal, row.predicted_us))
    return StoredPrediction(head.key, head.winner, row.predicted_us, head.provenance)
