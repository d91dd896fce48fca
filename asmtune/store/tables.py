"""The store's tables: portable SQL, so that a database other than SQLite will do.

    keys, timings, failures    records: tuned keys with every timing
    trials                     timings and failures of runs that have not ended
    predictions                configs that the model chose, and nobody has timed
    flights                    keys that a process is tuning now
    meta                       the schema's version

Version 1 had neither `trials` nor `flights`, and no `seal`; version 2 had no
`predictions`, and no `head`.
"""

from __future__ import annotations

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
    delete,
    insert,
    inspect,
    text,
)

from asmtune.store.sqlite import SCHEMA_VERSION

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
    # Digest of the whole record; NULL where version 1 has written the row. A
    # changed digit may parse and still be another config.
    Column("seal", String(64)),
    # Digest of key, winner and provenance alone: what a glance can check without
    # the timings. NULL where version 1 or 2 has written the row.
    Column("head", String(64)),
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


# Rows are only ever added, and deleted when the run's record is saved: writers
# never wait for each other. Of one config the newest row counts.
trials = Table(
    "trials",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("kernel", Text, nullable=False),
    Column("shape", Text, nullable=False),
    Column("dtypes", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("triton", Text, nullable=False),
    Column("date", Text, nullable=False),
    Column("outcome", Text, nullable=False),  # a measurement or a failure, as JSON
    Column("seal", String(64), nullable=False),
    Index("trials_by_digest", "digest"),
    sqlite_autoincrement=True,
)

# Apart from `keys`: what was never timed must not stand in the place of what was.
predictions = Table(
    "predictions",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("kernel", Text, nullable=False),
    Column("shape", Text, nullable=False),
    Column("dtypes", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("winner", Text, nullable=False),
    Column("predicted_us", Double),
    Column("source", Text, nullable=False),
    Column("space", Text, nullable=False),
    Column("triton", Text, nullable=False),
    Column("torch", Text, nullable=False),
    Column("asmtune", Text, nullable=False),
    Column("driver", Text, nullable=False),
    Column("date", Text, nullable=False),
    Column("seal", String(64), nullable=False),
)

flights = Table(
    "flights",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("owner", String(200), nullable=False),
    Column("beats", Integer, nullable=False),
)


def bring_up_to_date(connection: Connection) -> None:
    """Makes what is missing or older than this version; for one transaction.

    The caller has seen that no newer version has written the database.
    """
    metadata.create_all(connection)
    columns = {column["name"] for column in inspect(connection).get_columns("keys")}
    for name in ("seal", "head"):
        if name not in columns:
            connection.execute(text(f"ALTER TABLE keys ADD COLUMN {name} VARCHAR(64)"))
    connection.execute(delete(meta).where(meta.c.name == "schema_version"))
    version = {"name": "schema_version", "value": str(SCHEMA_VERSION)}
    connection.execute(insert(meta).values(version))
