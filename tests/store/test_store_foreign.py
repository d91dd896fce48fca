"""Store paths at which no store of ours is, and hostile files: one line, in time, untouched."""

from __future__ import annotations

import os
import socket
import sqlite3
import stat
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from store_records import PROVENANCE, record

from asmtune.base.errors import StoreError
from asmtune.store import sqlite_file
from asmtune.store.database import Store
from asmtune.store.lookup import StoreWarning, fast_lookup
from asmtune.store.safe_store import SafeStore
from asmtune.store.sqlite_file import APPLICATION_ID, SCHEMA_QUERY, SCHEMA_VERSION, schema_digest

KEY = record().key

ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i > 0) "
    "SELECT 'schema_version' AS name, '1' AS value FROM n WHERE i < 0"
)


def database(path: Path, *statements: str) -> None:
    """Make another program's SQLite file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements or ("CREATE TABLE notes (text)",):
            connection.execute(statement)


def like_ours(path: Path) -> None:
    """Make another program's SQLite file that happens to have tables of our names."""
    with closing(sqlite3.connect(path.with_name("ours"))) as made:
        Store.open(path.with_name("ours")).close()
        database(path, *(sql for name, sql in made.execute(SCHEMA_QUERY) if "sqlite_" not in name))
    for file in path.parent.glob("ours*"):
        file.unlink()


def linked(path: Path) -> None:
    """Make a link to another program's SQLite file."""
    database(path.with_name("foreign"))
    path.symlink_to(path.with_name("foreign"))


def listening(path: Path) -> None:
    """Make a socket."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def null(path: Path) -> None:
    """Make a device as /dev/null is."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no device may be made here")


FOREIGN: list[Callable[[Path], object]] = [
    database, like_ours, linked, listening, null, os.mkfifo, os.mkdir,
    lambda path: path.symlink_to("/dev/null"),
    lambda path: path.symlink_to(path.with_name("nowhere")),
    lambda path: path.write_text("x" * 68 + "asmtune" * 100),  # a text where our mark would be
    lambda path: path.write_bytes(b"SQLite format 3\0"),
    lambda path: path.write_bytes(b"\0"),
]  # fmt: skip


def look(folder: Path) -> list[tuple[object, ...]]:
    """All that there is to see of a folder's files."""
    seen = []
    for path in sorted(folder.iterdir()):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        link = path.readlink() if path.is_symlink() else None
        seen.append((path.name, status.st_mode, status.st_ino, status.st_rdev, link, content))
    return [entry for entry in seen if not str(entry[0]).endswith(".lock")]


@pytest.mark.parametrize("make", FOREIGN)
def test_what_is_no_store_is_left_alone(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """Whatever else is at the path is one line for each way of using it, and stays as it is."""
    path = tmp_path / "store.sqlite"
    make(path)
    before = look(tmp_path)
    for mode in ("error", "set_aside"):
        with pytest.raises(StoreError) as caught:
            Store.open(path, on_corrupt=mode, patience_s=1).save(record())  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(f"store {path}: ")
        assert "ASMTUNE_STORE_URL" in str(caught.value)
    assert fast_lookup(str(path), KEY, PROVENANCE).seen is None
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        safe = SafeStore(str(path), patience_s=1)
        safe.save(record())
        assert safe.lookup(KEY, PROVENANCE).outcome == "miss"
    assert len(shown) == 1
    assert look(tmp_path) == before


def test_an_empty_file_is_taken_for_a_new_store(tmp_path: Path) -> None:
    """An empty file, also behind a link, becomes a store; the link stays."""
    (tmp_path / "empty").touch()
    path = tmp_path / "store.sqlite"
    path.symlink_to("empty")
    with Store.open(path) as store:
        store.save(record())
        assert store.records() == [record()]
    database(path, "ANALYZE")  # whose tables are no damage
    with Store.open(path) as store:
        assert store.records() == [record()]
    assert path.is_symlink()
    assert fast_lookup(str(path), KEY, PROVENANCE).seen is not None


def test_the_schema_is_that_of_a_new_store(tmp_path: Path) -> None:
    """The digest by which a lookup without SQLAlchemy knows the tables is that of a new store."""
    Store.open(tmp_path / "store.sqlite").close()
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        schema = connection.execute(SCHEMA_QUERY).fetchall()
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert schema_digest(schema) == sqlite_file.SCHEMAS[SCHEMA_VERSION]


HOSTILE = [
    ("DROP TABLE meta", f"CREATE VIEW meta AS {ENDLESS}"),
    ("DROP TABLE keys", f"CREATE VIEW keys AS {ENDLESS}"),
    ("DROP TABLE keys", "CREATE VIRTUAL TABLE keys USING fts4(digest, kernel)"),
    ("DROP TABLE leases", "CREATE TABLE leases (digest, owner AS ('a' || digest), beats)"),
    ("CREATE TRIGGER t AFTER INSERT ON keys BEGIN UPDATE keys SET winner = '{}'; END",),
    ("ALTER TABLE keys ADD COLUMN more AS (kernel || kernel)",),
    ("CREATE TABLE more (a)",),
    ("DROP TABLE predictions",),
]


@pytest.mark.parametrize("statements", HOSTILE)
def test_tables_that_are_not_plain(tmp_path: Path, statements: tuple[str, ...]) -> None:
    """A view, a virtual table, a trigger or a column in the place of ours is told before a read."""
    path = tmp_path / "store.sqlite"
    Store.open(path).save(record())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for statement in statements:
            try:
                connection.execute(statement)
            except sqlite3.OperationalError as error:
                pytest.skip(str(error))
    began = time.monotonic()
    assert not fast_lookup(str(path), KEY, PROVENANCE).sure
    with pytest.raises(StoreError, match="not a readable asmtune store") as caught:
        Store.open(path)
    assert "\n" not in str(caught.value)
    with pytest.warns(StoreWarning, match="set aside as"):
        assert SafeStore(str(path)).lookup(KEY, PROVENANCE).outcome == "miss"
    assert time.monotonic() - began < 30
