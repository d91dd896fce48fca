"""The store's tables, in SQL that SQLite and PostgreSQL share, and rows of what has no record yet.

Each row carries the digest of its key and a seal: a digest of all its values. A row is read
back only where both match: a changed digit may parse and still be another config. A damaged
row is returned with its problem, and the store decides what to do about it.

Tables:

    keys           tuned keys: all of a record that a launch or a listing needs
    outcomes       timings and failures of each, as JSON
    trials         timings and failures of runs that have not ended
    predictions    configs that nobody has timed: of the model, or of launches too small to tune
    leases         keys that a process is tuning now
    meta           the schema's version, and a random name of the store
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    Text,
    and_,
    delete,
    insert,
    inspect,
    select,
    true,
)

from asmtune.base import json_codec
from asmtune.base.errors import InputError, StoreError
from asmtune.base.fingerprint import canonical
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.store import codec
from asmtune.store.lookup import DIGITS_SHOWN, StoredPrediction, StoredTrial, TrialOutcome
from asmtune.store.places import damaged
from asmtune.store.sqlite_file import (
    APPLICATION_ID,
    ELSEWHERE,
    SCHEMA_DIGEST,
    SCHEMA_QUERY,
    SCHEMA_VERSION,
    schema_digest,
)

_T = TypeVar("_T")

metadata = MetaData()

_KEY: Final = ("kernel", "shape", "dtypes", "device")


def _texts(*names: str) -> list[Column[str]]:
    return [Column(name, Text, nullable=False) for name in names]


meta = Table(
    "meta",
    metadata,
    Column("name", String(64), primary_key=True),
    *_texts("value"),
)

keys = Table(
    "keys",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    *_texts(*_KEY),
    *_texts("winner"),
    *_texts(*codec.PROVENANCE_FIELDS),
    Column("timed", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("median_us", Double),
    *_texts("tried"),
    # Digest of the outcomes, so that the seal can be checked without them.
    Column("outcomes", String(64), nullable=False),
    Column("seal", String(64), nullable=False),
    Index("keys_by_kernel", "kernel", "device"),
    # An id is never used twice: deleting a damaged row by its id cannot delete the good
    # record that another process has just put in its place.
    sqlite_autoincrement=True,
)

# Not in `keys`, whose rows lie together when they are listed. Samples are most of a record, and
# apart: few readers parse them.
outcomes = Table(
    "outcomes",
    metadata,
    Column("key_id", Integer, ForeignKey("keys.id"), primary_key=True),
    *_texts("measurements", "failures", "samples"),
)

# Rows are only added, and deleted when the run's record is saved, so that writers never wait
# for each other. The newest row of a config counts.
trials = Table(
    "trials",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False),
    *_texts(*_KEY),
    # `outcome` is a measurement or a failure, as JSON.
    *_texts("source", "triton", "date", "outcome"),
    Column("seal", String(64), nullable=False),
    Index("trials_by_digest", "digest"),
    sqlite_autoincrement=True,
)

# Not in `keys`: a config that was never timed must not replace one that was.
predictions = Table(
    "predictions",
    metadata,
    Column("digest", String(64), primary_key=True),
    *_texts(*_KEY),
    *_texts("winner"),
    Column("predicted_us", Double),
    *_texts(*codec.PROVENANCE_FIELDS),
    Column("seal", String(64), nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("owner", String(200), nullable=False),
    Column("beats", Integer, nullable=False),
)


def create(connection: Connection) -> None:
    """Make the tables and note their version; for one transaction."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA_VERSION}")
    metadata.create_all(connection)
    rows = {"schema_version": str(SCHEMA_VERSION), "store": secrets.token_hex(16)}
    connection.execute(insert(meta), [{"name": n, "value": v} for n, v in rows.items()])


def store_name(connection: Connection) -> str | None:
    """Return the random name that a store got when it was made; None for one made without."""
    return connection.execute(select(meta.c.value).where(meta.c.name == "store")).scalar()


def are_present(connection: Connection, place: str) -> bool:
    """Return False where a server's database has no tables yet; check those of others.

    Files are made with their tables and our application id: one without them is not a store.

    Raises:
        DamagedStoreError: the database does not hold the store's tables.
        StoreError: a newer asmtune has written it.
    """
    if connection.dialect.name == "sqlite":
        ask = connection.exec_driver_sql
        if ask("PRAGMA application_id").scalar_one() != APPLICATION_ID:
            raise damaged(place, "a database of another program")
        _check_version(ask("PRAGMA user_version").scalar_one(), place)
        # Statistics are there where a user has run `ANALYZE`.
        schema = [row for row in ask(SCHEMA_QUERY) if not row[0].startswith("sqlite_stat")]
        if schema_digest(schema) != SCHEMA_DIGEST:
            raise damaged(place, "its tables are not those of a store")
        return True
    names = set(inspect(connection).get_table_names())
    if meta.name not in names:
        return False
    text = connection.execute(select(meta.c.value).where(meta.c.name == "schema_version")).scalar()
    known = isinstance(text, str) and text.isdecimal() and len(text) < 10
    _check_version(int(text or 0) if known else 0, place)
    if not set(metadata.tables) <= names:
        raise damaged(place, "a table is missing")
    return True


def _check_version(found: int, place: str) -> None:
    if found > SCHEMA_VERSION:
        raise StoreError(
            f"store {place}: written by a newer asmtune (schema {found}, this one "
            f"knows {SCHEMA_VERSION}); upgrade asmtune, {ELSEWHERE}"
        )
    if found != SCHEMA_VERSION:
        raise damaged(place, f"schema version {found}")


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
    """Delete the rows that match, with the outcomes of records; return how many."""
    if table is keys:
        owners = select(keys.c.id).where(condition)
        connection.execute(delete(outcomes).where(outcomes.c.key_id.in_(owners)))
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
    return [codec.sealed({**columns, "outcome": canonical(value)}) for value in values]


def read_trial(row: Row[Any]) -> StoredTrial:
    """Check and read a row of `trials`.

    Raises:
        InputError: it is damaged.
    """
    columns = row._asdict()
    codec.check_seal(columns)
    named = {name: json_codec.json_of(columns[name], name) for name in ("shape", "dtypes")}
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
    return codec.sealed({**columns, "predicted_us": us})


def read_prediction(row: Row[Any]) -> StoredPrediction:
    """Check and read a row of `predictions`.

    Raises:
        InputError: it is damaged.
    """
    head = codec.read_row(row._asdict())
    return StoredPrediction(head.key, head.winner, row.predicted_us, head.provenance)
