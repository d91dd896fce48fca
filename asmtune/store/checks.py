"""Whether a database is a store, and whether all that it holds is sound."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, select, true

from asmtune.errors import StoreError
from asmtune.store import codec, rows, tables
from asmtune.store.faults import damaged
from asmtune.store.lookup import DIGITS_SHOWN, Finding


def check_version(connection: Connection, place: str) -> None:
    """Refuses a database that this version of asmtune cannot use.

    Raises:
        DamagedStoreError: it does not hold the store's tables.
        StoreError: a newer asmtune has written it.
    """
    query = select(tables.meta.c.value).where(tables.meta.c.name == "schema_version")
    text = connection.execute(query).scalar_one_or_none()
    if not isinstance(text, str) or not text.isdecimal() or len(text) > 9:
        raise damaged(place, "no schema version")
    if int(text) > tables.SCHEMA_VERSION:
        raise StoreError(
            f"store {place}: written by a newer asmtune (schema {int(text)}, this one "
            f"knows {tables.SCHEMA_VERSION}); upgrade asmtune, or set ASMTUNE_CACHE_DIR "
            "to another folder"
        )
    if not set(tables.metadata.tables) <= set(inspect(connection).get_table_names()):
        raise damaged(place, "a table is missing")


def findings(connection: Connection) -> list[Finding]:
    """What is wrong with the file, as SQLite sees it, and with each record."""
    found = []
    if connection.dialect.name == "sqlite":
        for (text,) in connection.exec_driver_sql("PRAGMA integrity_check"):
            if text != "ok":
                found.append(Finding("file", " ".join(str(text).split())))
    for loaded in rows.load(connection, true()):
        place = f"{loaded.digest[:DIGITS_SHOWN]} {loaded.kernel}"
        if loaded.record is None:
            found.append(Finding(place, loaded.problem))
        elif not codec.winner_is_timed(loaded.record):
            found.append(Finding(place, "its winner is not among its measurements"))
    if strays := rows.orphans(connection):
        found.append(Finding("file", f"{strays} timings or failures belong to no record"))
    return found
