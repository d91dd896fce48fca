"""Whether a database is a store, and whether all that it holds is sound."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, select, true

from asmtune.base.errors import StoreError
from asmtune.store import codec, partial_runs, predictions, rows, tables
from asmtune.store.faults import ELSEWHERE, damaged
from asmtune.store.lookup import DIGITS_SHOWN, StoreFinding
from asmtune.store.sqlite import SCHEMA_VERSION


def is_current(connection: Connection, place: str, *, made_whole: bool) -> bool:
    """Whether the tables are those of this version; False where they are older or missing.

    Args:
        connection: to the database.
        place: what messages call it.
        made_whole: whether one without tables is no store, as a file is not.

    Raises:
        DamagedStoreError: a file that does not hold the store's tables.
        StoreError: a newer asmtune has written it.
    """
    if not made_whole and not inspect(connection).has_table(tables.meta.name):
        return False
    query = select(tables.meta.c.value).where(tables.meta.c.name == "schema_version")
    text = connection.execute(query).scalar_one_or_none()
    if not isinstance(text, str) or not text.isdecimal() or not 0 < len(text) < 10 or not int(text):
        raise damaged(place, "no schema version")
    if int(text) > SCHEMA_VERSION:
        raise StoreError(
            f"store {place}: written by a newer asmtune (schema {int(text)}, this one "
            f"knows {SCHEMA_VERSION}); upgrade asmtune, {ELSEWHERE}"
        )
    if int(text) < SCHEMA_VERSION:
        return False
    if not set(tables.metadata.tables) <= set(inspect(connection).get_table_names()):
        raise damaged(place, "a table is missing")
    return True


def findings(connection: Connection) -> list[StoreFinding]:
    """What is wrong with the file, as SQLite sees it, and with each record, trial and guess."""
    found = []
    if connection.dialect.name == "sqlite":
        for (text,) in connection.exec_driver_sql("PRAGMA integrity_check"):
            if text != "ok":
                found.append(StoreFinding("file", " ".join(str(text).split())))
    for loaded in rows.load(connection, true()):
        place = f"{loaded.digest[:DIGITS_SHOWN]} {loaded.kernel}"
        if loaded.record is None:
            found.append(StoreFinding(place, loaded.problem))
        elif not codec.winner_is_timed(loaded.record):
            found.append(StoreFinding(place, "its winner is not among its measurements"))
    if strays := rows.orphans(connection):
        found.append(StoreFinding("file", f"{strays} timings or failures belong to no record"))
    damaged_trials = (row for row in partial_runs.load(connection, true()) if row.trial is None)
    found += [one for one in predictions.load(connection, true()) if isinstance(one, StoreFinding)]
    return found + [StoreFinding(row.place, row.problem) for row in damaged_trials]
