"""Stores of other schema versions: schema 1 is the only one that this asmtune reads."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from store_records import PROVENANCE, execute, record

from asmtune.base.errors import StoreError
from asmtune.store.database import Store
from asmtune.store.fast_lookup import fast_lookup
from asmtune.store.sqlite_file import APPLICATION_ID

# The keys of an early development version, which called its schema 1 too.
OLD_TABLES = """
CREATE TABLE meta (name VARCHAR(64) NOT NULL, value TEXT NOT NULL, PRIMARY KEY (name));
CREATE TABLE keys (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, digest VARCHAR(64) NOT NULL,
    kernel TEXT NOT NULL, UNIQUE (digest)
);
INSERT INTO meta VALUES ('schema_version', '1');
"""


@pytest.mark.parametrize("found", ["0", "", "-1", "two", "9999999999"])
def test_no_version(tmp_path: Path, found: str) -> None:
    """A version that never was is damage."""
    path = tmp_path / "store.sqlite"
    Store.open(path).close()
    execute(path, "UPDATE meta SET value = ?", found)
    with pytest.raises(OSError, match="no schema version"):
        Store.open(path)


def test_tables_of_a_development_version(tmp_path: Path) -> None:
    """A file without all tables of its schema is damage: refused, or set aside and made again."""
    path = tmp_path / "store.sqlite"
    path.touch(mode=0o600)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.executescript(OLD_TABLES)
    assert not fast_lookup(str(path), record().key, PROVENANCE).sure
    with pytest.raises(StoreError, match="a table is missing"):
        Store.open(path)
    with pytest.warns(UserWarning, match="set aside as"):
        Store.open(path, on_corrupt="set_aside").save(record())
    with Store.open(path) as store:
        assert store.records() == [record()]
        assert store.verify() == []
