"""SQLite files of stores, without SQLAlchemy: which files are ours, connections, and forks.

A file is ours if it is a regular file that carries our application id. Nothing else is ever
written, renamed or replaced. Before a query, `schema_digest` shows that the tables are plain
tables of ours: a view in the place of one could run for ever, or answer anything.

SQLite's handles and locks do not survive a fork: a child that opens the same file takes the
parent's locks for its own, and has damaged stores so. All connections are therefore opened and
closed within `connecting`, which any number of threads may be in, and a fork waits for them.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import sqlite3
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from asmtune.base.atomic_write import lock_descriptor
from asmtune.base.errors import StoreError
from asmtune.base.fingerprint import digest
from asmtune.base.trust import STORE_ELSEWHERE, fault_line

ELSEWHERE: Final = "or set ASMTUNE_STORE_URL to another place"
"""Advice that fits every error of a store."""

APPLICATION_ID: Final = 0x1EA5A7D9
"""SQLite's `application_id` of a store's file; its bytes are no text in any usual encoding."""

_ID_PLACE: Final = slice(68, 72)  # of the application id in an SQLite file's header

BESIDE: Final = ("-wal", "-shm", "-journal")
"""Ends of the names of files that SQLite keeps beside its own, and reads changes from."""

SCHEMA_VERSION: Final = 3
"""Version of the store's tables (`tables`), and SQLite's `user_version` of a store's file."""

SCHEMAS: Final = {
    1: "1098dcfadd9f82d6bb81a39b1531282df1d2b6f56a4287c8392dd40cb8aaac5d",
    2: "b4771630aca4796ab9a4b01042ec9713df1528abd0f3db583f110d156b07c88a",
    SCHEMA_VERSION: "cdc789f9c9d9a3a57a4df5d1e1e75ca3df51d443ea6b0161d83342e7f9235c8c",
}
"""`schema_digest` of a store's file by its version; a test compares the newest. A key has one
record in version 1, and one of each Triton in version 2 (`tables.put`), which have tables of runs
that have not ended and of seeds: nothing reads these."""

SCHEMA_QUERY: Final = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"

_STEPS: Final = 100_000
"""Instructions of SQLite's machine, about 2 ms, between two looks at the clock."""

FORK_WAIT_S: Final = 5.0
"""Seconds that a fork waits for the transactions of other threads. Each takes milliseconds: records
are read in batches and parsed afterwards, and nobody waits for another process in one."""

_TRY_S: Final = 0.05
"""Seconds that SQLite itself waits for another process's lock; then the transaction is given up,
so that a fork may pass, and begun again."""


class OwnThreadError(StoreError):
    """Another thread of this process was in the way for too long; the store itself is sound."""


class _Gate:
    """The connections of this process: any number of threads have some, or a fork passes.

    Attributes:
        users: threads that have a connection.
        waiting: forks and others that wait until no thread has one, or are passing; nobody enters
            meanwhile, so that threads that save without a pause cannot keep them waiting.
        writer: held by the one thread that writes to a file.
    """

    def __init__(self) -> None:
        self.users = self.waiting = 0
        self.changed = threading.Condition()
        self.writer = threading.RLock()
        self.own = threading.local()

    @property
    def depth(self) -> int:
        """Number of transactions that this thread is in."""
        return int(getattr(self.own, "depth", 0))

    def enter(self, patience_s: float) -> bool:
        """Count this thread among the users; return False if a fork passes for longer."""
        with self.changed:
            if not self.depth:
                if not self.changed.wait_for(lambda: not self.waiting, patience_s):
                    return False
                self.users += 1
            self.own.depth = self.depth + 1
        return True

    def leave(self) -> None:
        """Undo `enter`."""
        with self.changed:
            self.own.depth -= 1
            if not self.depth:
                self.users -= 1
                self.changed.notify_all()

    def close(self, patience_s: float) -> bool:
        """Let nobody enter until `reopen`; return whether the others have left."""
        with self.changed:
            self.waiting += 1
            own = int(self.depth > 0)
            return self.changed.wait_for(lambda: self.users == own, patience_s)

    def reopen(self) -> None:
        """Undo `close`."""
        with self.changed:
            self.waiting -= 1
            self.changed.notify_all()


_gate = _Gate()
_unusable = False


@contextmanager
def connecting(patience_s: float, *, writes: bool = False) -> Iterator[None]:
    """Let no fork pass while a connection is open; readers do not wait for anyone else.

    Args:
        patience_s: seconds to wait.
        writes: whether to wait for another thread that writes, which SQLite would poll for.

    Raises:
        OwnThreadError: a fork, or another thread that writes, takes longer.
        StoreError: this process was forked from within a transaction.
    """
    if _unusable:
        raise StoreError(
            "store: this process was forked from within a transaction of its parent, whose locks "
            "SQLite takes for its own: the store cannot be used here; fork before or after it"
        )
    gate, late = _gate, f"store: another thread of this process has used it for {patience_s:g} s"
    if writes and not gate.writer.acquire(timeout=patience_s):
        raise OwnThreadError(f"{late}; try again when that has ended")
    try:
        if not gate.enter(patience_s):
            raise OwnThreadError(f"{late}, while one forks; try again when that has ended")
        try:
            yield
        finally:
            if gate is _gate:  # not the parent's, in a child that was forked here
                gate.leave()
    finally:
        if writes and gate is _gate:
            gate.writer.release()


@contextmanager
def alone(patience_s: float) -> Iterator[None]:
    """Wait until no other thread has a connection, and let none be opened.

    Raises:
        OwnThreadError: another thread has one for longer than `patience_s`.
    """
    gate = _gate
    try:
        if not gate.close(patience_s):
            raise OwnThreadError("store: another thread of this process uses it; try again")
        yield
    finally:
        gate.reopen()


def _before_fork() -> None:
    _gate.close(FORK_WAIT_S)


def _after_in_parent() -> None:
    _gate.reopen()


def _after_in_child() -> None:
    global _gate, _unusable
    _unusable = _unusable or _gate.users > 0
    _gate = _Gate()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)


def keep_for_ever(handle: object) -> None:
    """Keep what a parent has open from being closed in a child, also when the child ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


def connect(path: Path, patience_s: float) -> sqlite3.Connection:
    """Open an existing SQLite file in autocommit mode; stay within `connecting` until it is closed.

    Reading ends after twice `patience_s`; `without_limit` takes that back. A file that cannot be
    written here is opened for reading.
    """
    # mode=rw: SQLite itself would make a missing file readable by others.
    uri = f"file:{quote(os.fsencode(path.absolute()))}?{_mode(path)}"
    connection = sqlite3.connect(
        uri,
        timeout=min(patience_s, _TRY_S),
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    # Damaged text must reach the check of its row, not end the whole query.
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    # A file can be made so that a plain query of it has no end.
    end = time.monotonic() + 2 * patience_s
    connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    for pragma in ("foreign_keys=ON", "trusted_schema=OFF", "cell_size_check=ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def without_limit(connection: sqlite3.Connection) -> None:
    """Let a connection take the time that it needs: it writes, or works at a user's request."""
    connection.set_progress_handler(None, 0)


def _mode(path: Path) -> str:
    if not is_read_only(path):
        return "mode=rw"
    log = Path(f"{os.path.realpath(path)}-wal")
    # A log belongs to a writer elsewhere. Without one the file does not change: SQLite, which
    # could not make its files beside it, may read it as it is.
    in_use = log.exists() and log.stat().st_size > 0
    return "mode=ro" if in_use else "mode=ro&immutable=1"


def is_read_only(path: Path) -> bool:
    """Tell whether a file is there that this process cannot write, or its folder."""
    real = Path(os.path.realpath(path))
    if not real.exists():
        return False
    seen, effective = identity(real), os.access in os.supports_effective_ids
    writable = all(
        os.access(place, os.W_OK, effective_ids=effective) for place in (real, real.parent)
    )
    # One that another process is just setting aside is not there for a moment.
    return not writable and identity(real) == seen


def holds_content(path: Path) -> bool:
    """Tell whether a regular file with content is at the path, and not nothing or an empty one.

    Raises:
        StoreError: something else is there, such as a device or a link that leads nowhere.
        OSError: the place cannot be looked at.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise _no_file(path, "leads to a missing file") from None
        return False
    if not stat.S_ISREG(status.st_mode):
        raise _no_file(path, "is no file")
    return status.st_size > 0


def _no_file(path: Path, problem: str) -> StoreError:
    return StoreError(f"store {path}: {problem}; name a file, {ELSEWHERE}")


def store_exists(path: Path) -> bool:
    """Tell whether a store's file exists; makes no file and loads no database code.

    Raises:
        StoreError: its folder cannot be read.
    """
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(fault_line("store", path, error, STORE_ELSEWHERE)) from error
    return True


def is_ours(path: Path) -> bool:
    """Tell whether a regular file carries our application id, however damaged the rest is.

    Be `alone`: closing a file drops the locks that SQLite has on it in this process.
    """
    with path.open("rb") as file:
        return file.read(_ID_PLACE.stop)[_ID_PLACE] == APPLICATION_ID.to_bytes(4, "big")


def identity(path: Path) -> tuple[int, int] | None:
    """Identify the file at the path; return None if it is missing."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def creation_lock(path: Path, patience_s: float) -> Iterator[None]:
    """Hold the lock under which the file is made or replaced.

    Raises:
        TimeoutError: another process holds it for longer than `patience_s`.
    """
    lock = path.with_name(f"{path.name}.lock")
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        lock_descriptor(descriptor, patience_s, "another process is making it")
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # for a forked child as well, which has it open
        os.close(descriptor)


def schema_digest(rows: Iterable[Sequence[Any]]) -> str:
    """Digest the words of a schema's statements, as `SCHEMA_QUERY` gives them, in any order.

    Statistics, which are there where a user has run `ANALYZE`, do not count.
    """
    own = (str(sql).lower() for name, sql in rows if not str(name).startswith("sqlite_stat"))
    words = sorted(" ".join(re.findall(r"\w+", sql)) for sql in own)
    return digest(*words)
