"""The store's tables, in SQL that SQLite and PostgreSQL share, and the check of their version.

Tables:

    keys, timings, failures    records: tuned keys with every timing
    trials                     timings and failures of runs that have not ended
    predictions                configs that the model chose and nobody has timed
    leases                     keys that a process is tuning now
    meta                       the schema's version, and a random name of the store
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from sqlalchemy import (
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from asmtune.base.errors import StoreError
from asmtune.store.codec import PROVENANCE_FIELDS
from asmtune.store.fast_lookup import SCHEMA_VERSION
from asmtune.store.places import damaged
from asmtune.store.sqlite_file import APPLICATION_ID, ELSEWHERE, SCHEMA_QUERY, schema_problem

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
    *_texts(*PROVENANCE_FIELDS),
    # Digest of the whole record: a changed digit may parse and still be another config.
    Column("seal", String(64), nullable=False),
    # Digest of key, winner, provenance and seal: `fast_lookup` checks it without the timings.
    Column("head", String(64), nullable=False),
    Index("keys_by_kernel", "kernel", "device"),
    # An id is never used twice: deleting a damaged row by its id cannot delete the good
    # record that another process has just put in its place.
    sqlite_autoincrement=True,
)

timings = Table(
    "timings",
    metadata,
    Column("key_id", Integer, ForeignKey("keys.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    *_texts("config"),
    Column("median_us", Double, nullable=False),
    Column("p20_us", Double, nullable=False),
    Column("p80_us", Double, nullable=False),
    *_texts("samples"),
)

failures = Table(
    "failures",
    metadata,
    Column("key_id", Integer, ForeignKey("keys.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    *_texts("config", "stage", "kind", "detail"),
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
    *_texts(*PROVENANCE_FIELDS),
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
    metadata.create_all(connection)
    rows = {"schema_version": str(SCHEMA_VERSION), "store": secrets.token_hex(16)}
    connection.execute(insert(meta), [{"name": n, "value": v} for n, v in rows.items()])


def store_name(connection: Connection) -> str | None:
    """Return the random name that a store got when it was made; None for one made without."""
    return connection.execute(select(meta.c.value).where(meta.c.name == "store")).scalar()


def are_present(connection: Connection, place: str, *, is_file: bool) -> bool:
    """Return False where a server's database has no tables yet; check the version of others.

    Args:
        connection: connection to the database.
        place: name of the store in messages.
        is_file: whether it is an SQLite file: files are made with their tables and our
            application id, so that one without them is not a store.

    Raises:
        DamagedStoreError: the database does not hold the store's tables.
        StoreError: a newer asmtune has written it.
    """
    if is_file:
        _check_file(connection, place, (meta,))
    elif not inspect(connection).has_table(meta.name):
        return False
    query = select(meta.c.value).where(meta.c.name == "schema_version")
    text = connection.execute(query).scalar_one_or_none()
    if not isinstance(text, str) or not text.isdecimal() or not 0 < len(text) < 10 or not int(text):
        raise damaged(place, "no schema version")
    if int(text) > SCHEMA_VERSION:
        raise StoreError(
            f"store {place}: written by a newer asmtune (schema {int(text)}, this one "
            f"knows {SCHEMA_VERSION}); upgrade asmtune, {ELSEWHERE}"
        )
    if is_file:
        _check_file(connection, place, metadata.sorted_tables)
    elif not set(metadata.tables) <= set(inspect(connection).get_table_names()):
        raise damaged(place, "a table is missing")
    return True


def statements(*of: Table) -> list[str]:
    """Return the statements that make tables, and their indexes, in an SQLite file."""
    dialect = sqlite.dialect()
    made = [str(CreateTable(table).compile(dialect=dialect)) for table in of]
    indexes = (index for table in of for index in table.indexes)
    return [*made, *(str(CreateIndex(index).compile(dialect=dialect)) for index in indexes)]


def _check_file(connection: Connection, place: str, of: Sequence[Table]) -> None:
    """Check the mark and the tables of a file, before any of them is read.

    Raises:
        DamagedStoreError: the file is another program's, or a table is none that we make.
    """
    if connection.exec_driver_sql("PRAGMA application_id").scalar_one() != APPLICATION_ID:
        raise damaged(place, "a database of another program")
    rows = [tuple(row) for row in connection.exec_driver_sql(SCHEMA_QUERY)]
    if len(of) == 1:
        rows = [row for row in rows if row[1] == of[0].name]
    problem = schema_problem(rows, statements(*of))
    if problem is not None:
        raise damaged(place, problem)
