"""The SQLite file of a store: made whole, private from the start, set aside if damaged."""

from __future__ import annotations

import errno
import fcntl
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool

from asmtune.store import tables
from asmtune.store.fast_lookup import connect
from asmtune.store.lookup import StoreWarning

BUSY_SECONDS: Final = 60.0
"""Seconds that a call waits for another process's lock, by default."""

_POLL_S: Final = 0.02
_WRITES: Final = "asmtune_writes"


def engine_of(path: Path, patience_s: float = BUSY_SECONDS) -> Engine:
    """Make an engine on an existing file; a locked file is waited for `patience_s`.

    It has no pool: a connection lives for one transaction, so that none is carried
    over a fork and none keeps a file open that was set aside.
    """
    engine = create_engine(
        "sqlite://", creator=lambda: connect(path, patience_s), poolclass=NullPool
    )
    event.listen(engine, "begin", _begin)
    return engine


def writing(engine: Engine) -> Engine:
    """Return the engine with transactions that may write."""
    return engine.execution_options(**{_WRITES: True})


def _begin(connection: Connection) -> None:
    # IMMEDIATE: a transaction that first reads and then writes could otherwise
    # fail at once, busy timeout or not, when another process wrote in between.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def identity(path: Path) -> tuple[int, int] | None:
    """Identify the file at the path; None where there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def ensure(path: Path, patience_s: float = BUSY_SECONDS) -> tuple[int, int] | None:
    """Make folder (0700) and file (0600) where missing; return the file's identity."""
    present = identity(path)
    if present is None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path, patience_s):
            if identity(path) is None:
                _create(path)
        present = identity(path)
    return present


def set_aside(
    path: Path, seen: tuple[int, int] | None, reason: str, patience_s: float = BUSY_SECONDS
) -> None:
    """Rename a damaged file and SQLite's files beside it; warn once.

    Nothing is done where another process has put a fresh file in its place, so that
    the file is no longer the one `seen`.
    """
    with _locked(path, patience_s):
        if identity(path) != seen:
            return
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        away = path.with_name(f"{path.name}.corrupt-{stamp}")
        # The log first: beside a fresh file SQLite would replay it.
        for suffix in ("-wal", "-shm"):
            beside = path.with_name(path.name + suffix)
            if beside.exists():
                beside.rename(away.with_name(away.name + suffix))
        path.rename(away)
        _create(path)
    warnings.warn(
        f"store {path} is damaged ({reason}): set aside as {away.name}, started afresh",
        StoreWarning,
        stacklevel=2,
    )


def _create(path: Path) -> None:
    """Build the file under another name, so that other processes only ever see it whole.

    Never close a file here that SQLite may have open in this process: that
    would drop SQLite's POSIX locks on it.
    """
    fresh = path.with_name(f"{path.name}.new")
    _unlink_all(fresh)  # left by a process that was killed here; the lock excludes others
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with closing(connect(fresh, BUSY_SECONDS)) as raw:
            raw.execute("PRAGMA journal_mode=WAL")  # persistent: stored in the file
        with writing(engine_of(fresh)).begin() as connection:
            tables.create(connection)
        fresh.rename(path)
    finally:
        _unlink_all(fresh)


def _unlink_all(path: Path) -> None:
    """Delete a file and SQLite's files beside it, where they exist."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@contextmanager
def _locked(path: Path, patience_s: float) -> Iterator[None]:
    """Hold the lock under which the file is made or replaced.

    Raises:
        TimeoutError: another process holds it for longer than `patience_s`.
    """
    lock = path.with_name(f"{path.name}.lock")
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, time.monotonic() + patience_s)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, until: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError(errno.ETIMEDOUT, "another process is making it") from None
            time.sleep(_POLL_S)
        else:
            return
