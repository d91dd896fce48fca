"""Forks while threads use the store: no committed record is lost, and nobody waits for ever."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import warnings
from pathlib import Path

import pytest
from children import finish, in_child, start
from sqlalchemy import Connection
from store_records import PROVENANCE, record

from asmtune.store import sqlite_file
from asmtune.store.database import Store
from asmtune.store.lookup import fast_lookup
from asmtune.store.safe_store import SafeStore

FORKS = 12
SAVERS = 2
PATIENCE_S = 60


def read(path: Path) -> None:
    """Read a store in each way that a launch has, with no word said."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        safe = SafeStore(str(path))
        for _ in range(5):
            assert safe.lookup(record(0).key, PROVENANCE).record == record(0)
            assert fast_lookup(str(path), record(0).key, PROVENANCE).seen is not None


def waited(child: int) -> int:
    """The exit status of a child; one that hangs is killed after a while."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


@pytest.mark.slow(seconds=10)
def test_forks_under_load(tmp_path: Path) -> None:
    """Children that read while threads of their parent save leave a sound store with all of it."""
    path = tmp_path / "store.sqlite"
    store = Store.open(path, on_corrupt="set_aside")
    store.save(record(0))
    over = threading.Event()
    saved: list[int] = []

    def save(first: int) -> None:
        m = first
        while not over.is_set():
            store.save(record(m))
            saved.append(m)
            m += SAVERS

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        threads = [threading.Thread(target=save, args=(n + 1,)) for n in range(SAVERS)]
        for thread in threads:
            thread.start()
        for _ in range(FORKS):
            children = [start(lambda _: read(path)) for _ in range(3)]
            assert [finish(*child) for child in children] == [""] * 3
        over.set()
        for thread in threads:
            thread.join()
    assert [file.name for file in tmp_path.glob("*corrupt*")] == []
    assert len(saved) > FORKS
    with Store.open(path) as fresh:
        assert {0, *saved} == {r.key.shape["M"] for r in fresh.records()}
        assert fresh.verify() == []


def test_a_fork_waits_for_a_transaction_of_another_thread(tmp_path: Path) -> None:
    """Whoever forks gets the lock when the transaction has ended, and the child its own handles."""
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    store.save(record(0))
    begun, forking = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        connection.exec_driver_sql("UPDATE keys SET id = id").close()
        begun.set()
        forking.wait(PATIENCE_S)
        time.sleep(0.2)

    thread = threading.Thread(target=lambda: store.transact(slow, writes=True))
    thread.start()
    begun.wait(PATIENCE_S)
    forking.set()
    assert in_child(lambda: (read(path), store.save(record(1)))) == ""
    thread.join()
    assert {r.key.shape["M"] for r in store.records()} == {0, 1}


@pytest.mark.parametrize("wait_s", [0.05, None])
def test_a_fork_within_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_s: float | None
) -> None:
    """A child forked in a transaction, of its own thread or one that has no end, goes on without.

    It neither commits nor closes what is its parent's, and the parent loses nothing.
    """
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    store.save(record(0))
    monkeypatch.setattr(sqlite_file, "FORK_WAIT_S", wait_s or PATIENCE_S)

    def go_on_without() -> None:
        safe = SafeStore(str(path))
        with pytest.warns(UserWarning, match="forked from within a transaction"):
            assert safe.lookup(record(0).key, PROVENANCE).outcome == "miss"

    def forks(connection: Connection) -> int:
        connection.exec_driver_sql("UPDATE leases SET beats = 0").close()
        return os.fork()

    if wait_s is None:
        child = store.transact(forks, writes=True)
        if child == 0:
            status = 1
            try:
                go_on_without()
                status = 0
            finally:
                os._exit(status)
        assert waited(child) == 0
    else:
        over, begun = threading.Event(), threading.Event()
        stuck = threading.Thread(
            target=lambda: store.transact(lambda _: (begun.set(), over.wait(PATIENCE_S)))
        )
        stuck.start()
        begun.wait(PATIENCE_S)
        assert in_child(go_on_without) == ""
        over.set()
        stuck.join()
    store.save(record(1))
    with Store.open(path) as fresh:
        assert fresh.records() == [record(0), record(1)]
        assert fresh.verify() == []


def test_forks_of_several_threads(tmp_path: Path) -> None:
    """Threads that fork at once, by any means of Python's, do not wait for each other for ever."""
    path = tmp_path / "store.sqlite"
    Store.open(path).save(record(0))
    context = multiprocessing.get_context("fork")
    codes: list[int | None] = []

    def fork() -> None:
        process = context.Process(target=read, args=(path,))
        process.start()
        process.join(PATIENCE_S)
        codes.append(process.exitcode)

    threads = [threading.Thread(target=fork) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 4


def test_a_fork_while_another_thread_opens_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child shares its parent's object, and does not wait for a thread that it does not have."""
    path = tmp_path / "store.sqlite"
    Store.open(path).save(record(0))
    safe, opening, over = SafeStore(str(path)), threading.Event(), threading.Event()
    opens = Store.open

    def slow(*where: object, **options: object) -> Store:
        opening.set()
        over.wait(PATIENCE_S)
        return opens(*where, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "open", slow)
    thread = threading.Thread(target=lambda: safe.lookup(record(0).key, PROVENANCE))
    thread.start()
    opening.wait(PATIENCE_S)
    monkeypatch.setattr(Store, "open", opens)

    def look() -> None:
        signal.alarm(PATIENCE_S)
        assert safe.lookup(record(0).key, PROVENANCE).record == record(0)

    assert in_child(look) == ""
    over.set()
    thread.join()
