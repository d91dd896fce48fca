"""Stores of version 1: brought up to date in place, in one transaction, whoever comes first."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from children import finish, killed, start
from postgres_server import Server, driven
from sqlalchemy import URL, create_engine
from sqlalchemy.pool import NullPool
from store_records import PROVENANCE, record

from asmtune.store import codec, tables
from asmtune.store.database import Store
from asmtune.store.fast_lookup import fast_lookup
from asmtune.store.lookup import Remembered, StoredPrediction

# As asmtune 0.1.0 made them.
VERSION_1 = """
CREATE TABLE meta (name VARCHAR(64) NOT NULL, value TEXT NOT NULL, PRIMARY KEY (name));
CREATE TABLE keys (
    id {serial}, digest VARCHAR(64) NOT NULL, kernel TEXT NOT NULL, shape TEXT NOT NULL,
    dtypes TEXT NOT NULL, device TEXT NOT NULL, winner TEXT NOT NULL, source TEXT NOT NULL,
    space TEXT NOT NULL, triton TEXT NOT NULL, torch TEXT NOT NULL, asmtune TEXT NOT NULL,
    driver TEXT NOT NULL, date TEXT NOT NULL, UNIQUE (digest)
);
CREATE INDEX keys_by_kernel ON keys (kernel, device);
CREATE TABLE timings (
    key_id INTEGER NOT NULL, position INTEGER NOT NULL, config TEXT NOT NULL,
    median_us {double} NOT NULL, p20_us {double} NOT NULL, p80_us {double} NOT NULL,
    samples TEXT NOT NULL,
    PRIMARY KEY (key_id, position), FOREIGN KEY(key_id) REFERENCES keys (id)
);
CREATE TABLE failures (
    key_id INTEGER NOT NULL, position INTEGER NOT NULL, config TEXT NOT NULL, stage TEXT NOT NULL,
    kind TEXT NOT NULL, detail TEXT NOT NULL,
    PRIMARY KEY (key_id, position), FOREIGN KEY(key_id) REFERENCES keys (id)
);
INSERT INTO meta VALUES ('schema_version', '1');
"""

KEPT = f"""
INSERT INTO keys VALUES (1, '{codec.key_digest(record().key)}', 'pkg.matmul',
    '{{"M":4096,"causal":true}}', '{{"a":"fp16"}}', 'NVIDIA H200',
    '{{"BLOCK_M":128,"EVEN":true,"maxnreg":168,"num_stages":3,"num_warps":8}}',
    '{"5" * 64}', '{"a" * 64}', '3.6.0', '2.11.0', '0.1.0', '570.86.15',
    '2025-03-01T12:00:00+00:00');
INSERT INTO timings VALUES (1, 0,
    '{{"BLOCK_M":128,"EVEN":true,"maxnreg":168,"num_stages":3,"num_warps":8}}',
    9.5, 9.25, 10.0, '[0.30000000000000004,9.75]');
INSERT INTO timings VALUES (1, 1,
    '{{"BLOCK_M":64,"EVEN":false,"num_ctas":2,"num_stages":3,"num_warps":4}}',
    12.0, 11.75, 12.5, '[0.30000000000000004,9.75]');
INSERT INTO failures VALUES (1, 0, '{{"BLOCK_M":512,"num_stages":3,"num_warps":4}}',
    'ptxas', 'registers', 'too many' || NEWLINE || 'at line 3');
"""


def make_file(path: Path) -> Path:
    """A file of version 1 with one record."""
    path.touch(mode=0o600)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        serial = "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT"
        connection.executescript(VERSION_1.format(serial=serial, double="DOUBLE"))
        connection.executescript(KEPT.replace("NEWLINE", "char(10)"))
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of version 1 with one record."""
    if request.param == "sqlite":
        return str(make_file(tmp_path / "store.sqlite"))
    server: Server = request.getfixturevalue("postgres")
    url = server.new_store()
    script = VERSION_1.format(serial="SERIAL PRIMARY KEY", double="DOUBLE PRECISION")
    for statement in (script + KEPT.replace("NEWLINE", "chr(10)")).split(";\n"):
        if statement.strip():
            server.execute(statement, url)
    server.execute("SELECT setval('keys_id_seq', 1)", url)
    return url


def version(where: str) -> str:
    """Read the version that a store states."""
    with Store.open(where) as store:
        query = tables.meta.select()
        return str(store.transact(lambda connection: connection.execute(query).one().value))


def test_brought_up_to_date(old: str) -> None:
    """A store of version 1 keeps its records and takes all that this version keeps."""
    with Store.open(old) as store:
        assert store.records() == [record()]
        assert store.lookup(record().key, PROVENANCE).outcome == "hit"
        assert store.verify() == []
        store.remember(record(1).key, PROVENANCE, record().measurements)
        store.save(record(2))
        assert store.remembered(record(1).key, PROVENANCE) == Remembered(record().measurements)
        assert store.verify() == []
    assert version(old) == "3"


def test_version_2_brought_up_to_date(tmp_path: Path) -> None:
    """A store of version 2 keeps its records and what was remembered, and takes predictions."""
    path = tmp_path / "store.sqlite"
    with Store.open(path) as store:
        store.save(record())
        store.remember(record(1).key, PROVENANCE, record().measurements)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE predictions")
        connection.execute("ALTER TABLE keys DROP COLUMN head")
        connection.execute("UPDATE meta SET value = '2'")
    assert not fast_lookup(str(path), record().key, PROVENANCE).sure
    guess = StoredPrediction(record(2).key, record().winner, 5.0, PROVENANCE)
    with Store.open(path) as store:
        assert store.records() == [record()]
        assert store.remembered(record(1).key, PROVENANCE) == Remembered(record().measurements)
        store.predict(guess)
        store.save(record(3))
        assert store.verify() == []
    assert version(str(path)) == "3"
    assert fast_lookup(str(path), record(3).key, PROVENANCE).sure
    assert fast_lookup(str(path), guess.key, PROVENANCE).seen is not None


def test_by_eight_processes_at_once(old: str) -> None:
    """Processes that meet the old store together bring it up to date once, and all can use it."""

    def work(n: int) -> None:
        with Store.open(old) as store:
            store.save(record(n))

    children = [start(lambda _, n=n: work(n)) for n in range(8)]
    assert [finish(*child) for child in children] == [""] * 8
    with Store.open(old) as store:
        assert len(store.records()) == 9
        assert store.verify() == []


def test_killed_while_bringing_up_to_date(tmp_path: Path) -> None:
    """A process killed in between leaves the old version or the new, with every record."""
    versions = set()
    for n in range(12):
        path = make_file(tmp_path / f"{n}.sqlite")
        killed(lambda _, path=path: Store.open(path), 0.0015 * n)
        with closing(sqlite3.connect(path)) as connection:
            (found,) = connection.execute("SELECT value FROM meta").fetchone()
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        assert ({"trials", "flights", "predictions"} <= names) == (found == "3")
        versions.add(found)
        with Store.open(path) as store:
            assert store.records() == [record()]
            assert store.verify() == []
    assert "1" in versions


def test_old_asmtune_at_work_meanwhile(old: str) -> None:
    """What a process of version 1 that is still running saves is a sound record here."""
    Store.open(old).close()
    url = driven(old) if "://" in old else URL.create("sqlite", database=old)
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        for table in ("failures", "timings", "keys"):
            connection.exec_driver_sql(f"DELETE FROM {table}")
        named = "INSERT INTO keys (" + ", ".join(
            column.name for column in tables.keys.columns if column.name not in ("seal", "head")
        )
        newline = "chr(10)" if "://" in old else "char(10)"
        script = KEPT.replace("NEWLINE", newline).replace(
            "INSERT INTO keys VALUES", f"{named}) VALUES"
        )
        for statement in script.split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)
    with Store.open(old) as store:
        assert store.records() == [record()]
        assert store.verify() == []


@pytest.mark.parametrize("found", ["0", "", "-1", "two", "9999999999"])
def test_no_version(tmp_path: Path, found: str) -> None:
    """A version that never was is damage."""
    path = make_file(tmp_path / "store.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = ?", (found,))
    with pytest.raises(OSError, match="no schema version"):
        Store.open(path)


def test_version_1_claimed_by_a_newer_file(tmp_path: Path) -> None:
    """A store whose version was changed to 1 by damage keeps its records all the same."""
    path = tmp_path / "store.sqlite"
    Store.open(path).save(record())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE meta SET value = '1'")
    assert version(str(path)) == "3"
    with Store.open(path) as store:
        assert store.records() == [record()]
