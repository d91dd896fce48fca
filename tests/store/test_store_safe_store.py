"""`SafeStore` on stores that fail: one warning, no exception, no hang, never a wrong config."""

from __future__ import annotations

import re
import socket
import sqlite3
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from children import as_nobody, finish, say, start
from store_records import PROVENANCE, record

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneRecord
from asmtune.store import safe_store
from asmtune.store.database import Store
from asmtune.store.interchange import find_tuned
from asmtune.store.lookup import StoreLookup, StoreWarning
from asmtune.store.safe_store import RETRY_S, SafeStore

KEY = record().key
LOST = StoreLookup("miss", detail="the store cannot be used")


def warnings_of(safe: SafeStore) -> list[str]:
    """Use a safe store in every way, as a launch that tunes does; return its warnings.

    What it answers is a miss, nothing, or just what this launch has made.
    """
    mine = record()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            found = find_tuned(KEY, PROVENANCE, safe)
            assert found.outcome == "miss" or found.record == mine
            with safe.lease(KEY, PROVENANCE) as lease:
                assert lease.mine or lease.record == mine
                assert lease.finish(mine) == mine
            safe.save(mine)
            assert safe.records("pkg.matmul") in ([], [mine])
    assert all(warning.category is StoreWarning for warning in caught)
    return [str(warning.message) for warning in caught]


def goes_on_without(safe: SafeStore, *parts: str, what: str = "the store") -> None:
    """The safe store warns once, in one line that holds these parts, and is of no more use."""
    (message,) = warnings_of(safe)
    assert message.endswith(f"; going on without {what}")
    assert [part for part in parts if part not in message] == []
    assert "\n" not in message
    assert not safe.working
    assert (safe.lookup(KEY, PROVENANCE) == LOST) == (what == "the store")


def only_reads(safe: SafeStore, *parts: str) -> None:
    """The safe store warns once that nothing is saved, and still finds what the store holds."""
    goes_on_without(safe, *parts, what="saving")


def impatient(where: Path | str) -> SafeStore:
    """A safe store whose waits do not hold the tests up."""
    return SafeStore(str(where), patience_s=0.2)


def test_a_sound_store(where: str) -> None:
    """On a sound store a safe store says nothing, and keeps and finds what a store does."""
    safe = SafeStore(where)
    assert warnings_of(safe) == []
    assert safe.working
    assert safe.lookup(KEY, PROVENANCE) == StoreLookup("hit", record())
    with Store.open(where) as store:
        assert store.records() == [record()]


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "PRAGMA locking_mode"])
def test_locked_store(tmp_path: Path, lock: str) -> None:
    """A file that another process has locked holds nothing up for longer than is set."""
    path = tmp_path / "store.sqlite"
    Store.open(path).close()
    told = only_reads
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        if lock.startswith("PRAGMA"):
            told = goes_on_without
            holder.execute("PRAGMA locking_mode = EXCLUSIVE")
            lock = "BEGIN EXCLUSIVE"
        holder.execute(lock)
        told(impatient(path), "database is locked", "try again when that has ended")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 400 kB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode != 0:
        pytest.skip(f"no disk may be mounted here: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_read_only_folder(open_folder: Path) -> None:
    """A folder that its user may not write costs a warning; another user's store is read there."""
    (open_folder / "cache").mkdir(mode=0o555)
    new = open_folder / "cache" / "store.sqlite"
    assert as_nobody(lambda: goes_on_without(SafeStore(str(new)), "Permission denied")) == ""
    made = open_folder / "made" / "store.sqlite"
    Store.open(made).save(record())
    made.parent.chmod(0o555)
    assert as_nobody(lambda: goes_on_without(SafeStore(str(made)), "readable and writable")) == ""
    made.chmod(0o444)
    assert as_nobody(lambda: only_reads(SafeStore(str(made)), "read-only here")) == ""


def big(m: int) -> TuneRecord:
    """A record of some 20 kB."""
    many = replace(record().measurements[0], samples_us=(0.1234567890123,) * 1_000)
    return record(m, measurements=(many,))


def fill(disk: Path, but: int) -> Path:
    """Take all of a disk's room but some bytes."""
    file = disk / "filler"
    with file.open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))
    with file.open("r+b") as filler:
        filler.truncate(max(0, file.stat().st_size - but))
    return file


@pytest.mark.parametrize(("existing", "left_kib"), [(True, 0), (True, 16), (True, 80), (False, 8)])
def test_full_disk(disk: Path, existing: bool, left_kib: int) -> None:
    """A disk that is full, or fills while tuning, costs a warning and nothing that was kept."""
    path = disk / "store.sqlite"
    if existing:
        Store.open(path).save(record(1))
    filler = fill(disk, 1024 * left_kib)
    safe = SafeStore(str(path))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for m in range(2, 30):
            with safe.lease(record(m).key, PROVENANCE) as lease:
                assert lease.mine
                assert lease.finish(big(m)) == big(m)
    (message,) = {str(warning.message) for warning in caught}
    assert message.endswith(("; going on without the store", "; going on without saving"))
    assert "space" in message
    assert len(caught) == 1
    if existing and left_kib >= 40:  # SQLite needs 32 kB in memory shared through a file to read
        assert safe.lookup(KEY, PROVENANCE).outcome == "miss"
        assert safe.lookup(record(1).key, PROVENANCE).record == record(1)
    filler.unlink()
    with Store.open(path) as store:
        kept = store.records()
        assert store.verify() == []
    assert all(r in (record(1), big(r.key.shape["M"])) for r in kept)
    assert not existing or record(1) in kept


def test_config_that_cannot_be_kept(where: str) -> None:
    """A config whose values no store can hold is used, and said once not to be kept."""
    odd = Config({"ACC": object()})
    made = record(winner=odd, measurements=(replace(record().measurements[0], config=odd),))
    safe = SafeStore(where)

    def tune() -> None:
        for _ in range(3):
            with safe.lease(KEY, PROVENANCE) as lease:
                assert lease.finish(made) is made

    with pytest.warns(StoreWarning, match=r"ACC: expected .*; it is not kept") as caught:
        tune()
    assert len(caught) == 1
    assert safe.working
    assert warnings_of(safe) == []


PLACES = {
    "sqlite://": "store URL sqlite://...: ",
    "://": "give the path of a file",
    "mysql://me:secret@host/x": "store URL mysql://...: ",
    "nosuchdb://me:secret@host/x": "store URL nosuchdb://...: ",
    "postgresql://me:se@secret@host/x": "store URL postgresql://...: ",
    "postgresql://me:p@host:secret/x": "store URL postgresql://...: ",
    "postgresql+nodriver://me:secret@host/x": "store URL postgresql+nodriver://...: ",
    "a\0b": "NUL in its name",
    "sqlite:///a%00b": "NUL in its name",
    "postgresql://h/d?python=%00": "NUL in its name",
}


def test_places_that_cannot_be_served() -> None:
    """An impossible place, or a missing driver, is one line that holds no password."""
    for where, says in PLACES.items():
        with pytest.raises(InputError, match=re.escape(says)) as caught:
            Store.open(where)
        assert str(caught.value).isprintable()
        safe = SafeStore(where)
        goes_on_without(safe, says)
        assert not any("secret" in text for text in (*safe._warned, str(caught.value)))


@pytest.mark.slow
@pytest.mark.parametrize("listens", [False, True])
def test_server_that_does_not_answer(listens: bool) -> None:
    """A server that refuses connections, or says nothing, holds a launch up for a bounded time."""
    pytest.importorskip("psycopg", reason="no psycopg: pip install '.[postgresql]'")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if listens:
            taken.listen()
        url = f"postgresql://me:secret@127.0.0.1:{taken.getsockname()[1]}/x?sslpassword=hidden"
        safe = impatient(url)
        goes_on_without(safe, "me:***@127.0.0.1", "check that the database is up")
    assert not any("secret" in text or "hidden" in text for text in safe._warned)


def test_store_that_fails_while_others_wait(tmp_path: Path) -> None:
    """Who waits for another's record when the store fails tunes by itself."""
    path = tmp_path / "cache" / "store.sqlite"

    def wait(pipe: int) -> None:
        safe = impatient(path)
        say(pipe, "here")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with safe.lease(KEY, PROVENANCE) as lease:
                say(pipe, lease.mine, lease.finish(record()) == record())
        say(pipe, len(caught))

    def tune() -> None:
        with SafeStore(str(path)).lease(KEY, PROVENANCE):
            child, reader = start(wait)
            path.rename(path.with_name("away"))
            path.mkdir()
            assert finish(child, reader) == "here\nTrue True\n1\n"

    with pytest.warns(StoreWarning, match="going on without saving") as caught:
        tune()
    assert len(caught) == 1


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_tried_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    """A store that was locked is used again later, with one warning however often it fails."""
    path = tmp_path / "store.sqlite"
    Store.open(path).save(record(1))
    now, clock = [1000.0], time.monotonic
    monkeypatch.setattr(safe_store.time, "monotonic", lambda: now[0] + clock())
    safe = impatient(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        if lock == "BEGIN EXCLUSIVE":
            holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute(lock)

        opened: list[object] = []
        monkeypatch.setattr(safe, "_open", lambda: opened.append(1) or SafeStore._open(safe))

        def fail_thrice() -> None:
            for tries in range(1, 4):
                for _ in range(5):  # each try could take as long as the first
                    safe.save(record())
                assert len(opened) == tries
                now[0] += RETRY_S + 1

        with pytest.warns(StoreWarning, match="database is locked") as caught:
            fail_thrice()
        assert 1 <= len(caught) <= 2
    safe.save(record())
    assert safe.working
    assert safe.lookup(KEY, PROVENANCE).record == record()
