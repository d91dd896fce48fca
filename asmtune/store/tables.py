"""The store's tables: portable SQL, so that a database other than SQLite will do."""

from __future__ import annotations

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
    select,
)

SCHEMA_VERSION: Final = 1

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("kernel", Text, nullable=False),
    Column("shape", Text, nullable=False),
    Column("dtypes", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("winner", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("space", Text, nullable=False),
    Column("triton", Text, nullable=False),
    Column("torch", Text, nullable=False),
    Column("asmtune", Text, nullable=False),
    Column("driver", Text, nullable=False),
    Column("date", Text, nullable=False),
    Index("keys_by_kernel", "kernel", "device"),
    # An id is never given twice: setting a damaged row aside by its id cannot
    # hit the good record that another process has just put in its place.
    sqlite_autoincrement=True,
)

timings = Table(
    "timings",
    metadata,
    Column("key_id", Integer, ForeignKey("keys.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("config", Text, nullable=False),
    Column("median_us", Double, nullable=False),
    Column("p20_us", Double, nullable=False),
    Column("p80_us", Double, nullable=False),
    Column("samples", Text, nullable=False),
)

failures = Table(
    "failures",
    metadata,
    Column("key_id", Integer, ForeignKey("keys.id"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("config", Text, nullable=False),
    Column("stage", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("detail", Text, nullable=False),
)


def create(connection: Connection) -> None:
    """Makes the tables that are missing and notes the schema's version in new ones."""
    metadata.create_all(connection)
    if connection.execute(select(meta.c.name)).first() is None:
        version = {"name": "schema_version", "value": str(SCHEMA_VERSION)}
        connection.execute(insert(meta).values(version))
