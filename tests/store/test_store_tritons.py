"""Records of several Tritons in one store: each keeps its own, a candidate for the others."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from children import finish, start
from sqlalchemy import Connection, Index, MetaData, select
from store_records import PROVENANCE, record, timed

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.records.tuned import Provenance, TuneRecord
from asmtune.store import interchange, tables
from asmtune.store.database import Store
from asmtune.store.lookup import StoreWarning, fast_lookup

KEY = record().key
TRITONS = ("3.6.0", "3.8.0")


def now(triton: str) -> Provenance:
    """How the key is tuned under a Triton; the newer, the later."""
    return replace(PROVENANCE, triton=triton, date=f"2026-01-{triton[2]}0T00:00:00+00:00")


def made(triton: str, block: int = 32, **changes: str) -> TuneRecord:
    """A record of one key that a Triton has made."""
    best = timed(Config({"BLOCK_M": block}))
    provenance = replace(now(triton), **changes)
    return record(winner=best.config, measurements=(best,), provenance=provenance)


def test_each_triton_keeps_its_record(store: Store) -> None:
    """A record replaces that of its own minor version, or all where the source has changed."""
    old, new = made("3.6.0", 16), made("3.8.0", 64)
    store.save_all([old, new])
    assert [store.lookup(KEY, now(one)).record for one in TRITONS] == [old, new]
    assert store.find(KEY) == new
    patched = made("3.8.1", 128)
    assert store.save_first(patched) == new
    store.save(patched)
    assert sorted(r.provenance.triton for r in store.records()) == ["3.6.0", "3.8.1"]
    changed = made("3.8.1", source="6" * 64)
    store.save(changed)
    assert store.records() == [changed]
    assert store.verify() == []


def test_a_record_of_another_triton_is_a_candidate(store: Store) -> None:
    """The newest counts; one of another space or source does not count."""
    store.save_all([made("3.6.0", 16), made("3.8.0", 64)])
    found = store.lookup(KEY, now("3.9.0"))
    assert (found.outcome, found.is_candidate) == ("stale", True)
    assert found.record == made("3.8.0", 64)
    assert not store.lookup(KEY, now("3.6.2")).is_candidate
    for name in ("source", "space"):
        assert not store.lookup(KEY, replace(now("3.9.0"), **{name: "7" * 64})).is_candidate


def version_1(where: str | Path) -> None:
    """Make a store as asmtune made it when a key had one record, with tables that went since."""

    def change(connection: Connection) -> None:
        old = MetaData()
        for name in ("trials", "seeds"):
            table = tables.predictions.to_metadata(old, name=name)
            for index in [*table.indexes]:
                table.indexes.discard(index)
                named = str(index.name).replace("predictions", name)
                Index(named, *(table.c[column.name] for column in index.columns))
        old.create_all(connection)
        for statement in (
            "DROP INDEX keys_by_digest",
            "CREATE UNIQUE INDEX keys_by_digest ON keys (digest)",
            "UPDATE meta SET value = '1'",
            *(["PRAGMA user_version = 1"] if connection.dialect.name == "sqlite" else ()),
        ):
            connection.exec_driver_sql(statement)

    with Store.open(where) as store:
        store.transact(change, writes=True)


def version_of(store: Store) -> str:
    """The version that a store's tables say they have."""
    query = select(tables.meta.c.value).where(tables.meta.c.name == "schema_version")
    return str(store.transact(lambda connection: connection.execute(query).scalar()))


def test_a_store_of_an_earlier_asmtune(where: str) -> None:
    """It is read and written as it is, and takes a second Triton's record when there is one."""
    version_1(where)
    old, again, new = made("3.6.0", 16), made("3.6.1", 32), made("3.8.0", 64)
    with Store.open(where) as store:
        for one, version in ((old, "1"), (again, "1"), (new, "2"), (made("3.9.0"), "2")):
            store.save(one)
            assert store.lookup(KEY, one.provenance).record == one
            assert version_of(store) == version
            if "://" not in where:
                found = fast_lookup(where, KEY, one.provenance)
                assert found.seen is not None
                assert found.seen.config == one.winner
        assert store.find(KEY) == made("3.9.0")
        assert len(store.records()) == 3
        assert store.verify() == []


def test_two_tritons_at_once(where: str) -> None:
    """Two processes that tune the same keys under two Tritons never lose a record of the other."""
    version_1(where)

    def tune(triton: str) -> None:
        with Store.open(where) as store:
            for m in range(40):
                one = replace(made(triton, 16), key=record(m % 4).key)
                store.save(one)
                assert store.lookup(one.key, one.provenance).outcome == "hit"

    ends = [start(lambda _, triton=triton: tune(triton)) for triton in TRITONS]
    assert [finish(*end) for end in ends] == ["", ""]
    with Store.open(where) as store:
        kept = sorted((r.key.shape["M"], r.provenance.triton) for r in store.records())
        assert kept == [(m, triton) for m in range(4) for triton in TRITONS]
        assert store.verify() == []


def test_a_damaged_record_of_another_triton(tmp_path: Path) -> None:
    """Damage to one Triton's record leaves the other's a hit."""
    path = tmp_path / "store.sqlite"
    with Store.open(path, on_corrupt="set_aside") as store:
        store.save_all([made("3.6.0"), made("3.8.0")])
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("UPDATE keys SET seal = '' WHERE triton = '3.6.0'")
        assert [one.problem for one in store.verify()] == ["its values do not match its seal"]
        with pytest.warns(StoreWarning, match="1 damaged rows"):
            assert store.lookup(KEY, now("3.8.0")).record == made("3.8.0")


def test_a_file_holds_a_record_of_each_triton(store: Store, tmp_path: Path) -> None:
    """What a store of two Tritons exports, another imports; one Triton's twice is refused."""
    both = [made("3.6.0", 16), made("3.8.0", 64)]
    interchange.write(tmp_path / "both.json", both)
    store.save_all(interchange.read(tmp_path / "both.json"))
    assert [store.lookup(KEY, now(one)).outcome for one in TRITONS] == ["hit", "hit"]
    with pytest.raises(InputError, match=r"expected a key once for triton 3\.8"):
        interchange.write(tmp_path / "twice.json", [made("3.8.0"), made("3.8.1")])
