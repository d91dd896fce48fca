"""SQLite files of stores, without SQLAlchemy: which files are ours, connections, and forks.

A file is ours if it is a regular file that carries our application id. Nothing else is ever
written, renamed or replaced. Before a query, `schema_problem` shows that the tables are plain
tables of ours: a view in the place of one could run for ever, or answer anything.

SQLite's handles and locks do not survive a fork: a child that opens the same file takes the
parent's locks for its own, and has damaged stores so. All connections are therefore opened and
closed under `exclusive`, one lock of the whole process, and a fork waits for it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import sqlite3
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from asmtune.base.atomic_write import lock_descriptor
from asmtune.base.errors import StoreError
from asmtune.base.fingerprint import digest

ELSEWHERE: Final = "or set ASMTUNE_STORE_URL to another place"
"""Advice that fits every error of a store."""

APPLICATION_ID: Final = 0x1EA5A7D9
"""SQLite's `application_id` of a store's file; its bytes are no text in any usual encoding."""

_ID_PLACE: Final = slice(68, 72)  # of the application id in an SQLite file's header

BESIDE: Final = ("-wal", "-shm", "-journal")
"""Ends of the names of files that SQLite keeps beside its own, and reads changes from."""

SCHEMA_DIGEST: Final = "18b46574e098debaaa07994171119a81ec0e5c05d387e31615fbea85633cf5dd"
"""`schema_digest` of a new store's file; a test compares them."""

# Tables that SQLite itself makes: for `AUTOINCREMENT`, and where a user has run `ANALYZE`.
_OF_SQLITE: Final = ("sqlite_stat1", "sqlite_stat4", "sqlite_sequence")

SCHEMA_QUERY: Final = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"

_STEPS: Final = 100_000
"""Instructions of SQLite's machine, about 2 ms, between two looks at the clock."""

FORK_WAIT_S: Final = 20.0
"""Seconds that a fork waits for a transaction of another thread. It takes some 10 ms, unless
another process holds the file: then at most twice the 10 s that a launch waits for it."""

# Process-wide: a transaction holds the lock, and so does a fork. The gate is closed while a fork
# waits, so that threads that save without a pause cannot keep it waiting.
_lock = threading.RLock()
_gate = threading.Event()
_gate.set()
_depth = 0
_unusable = False
_thread = threading.local()


@contextmanager
def exclusive(patience_s: float) -> Iterator[None]:
    """Hold the process's lock for transactions, so that no fork happens inside.

    Raises:
        TimeoutError: another thread holds it for longer than `patience_s`.
        StoreError: this process was forked from within a transaction.
    """
    global _depth
    if _unusable:
        raise StoreError(
            "store: this process was forked from within a transaction of its parent, whose locks "
            "SQLite takes for its own: the store cannot be used here; fork before or after it"
        )
    lock, outer = _lock, getattr(_thread, "depth", 0)
    if not outer:
        _gate.wait(patience_s)
    if not lock.acquire(timeout=patience_s):
        raise TimeoutError(errno.ETIMEDOUT, "another thread of this process is using it")
    _depth += 1
    _thread.depth = outer + 1
    try:
        yield
    finally:
        _thread.depth = outer
        _depth -= 1
        lock.release()


def _before_fork() -> None:
    _gate.clear()
    _thread.locked = _lock.acquire(timeout=FORK_WAIT_S)


def _after_in_parent() -> None:
    if _thread.locked:
        _lock.release()
    _gate.set()


def _after_in_child() -> None:
    global _lock, _gate, _depth, _unusable
    # With the lock and no transaction, no handle was open at the fork.
    _unusable = _unusable or _depth > 0
    _lock, _gate, _depth, _thread.depth = threading.RLock(), threading.Event(), 0, 0
    _gate.set()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)


def keep_for_ever(handle: object) -> None:
    """Keep what a parent has open from being closed in a child, also when the child ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


def connect(path: Path, patience_s: float) -> sqlite3.Connection:
    """Open an existing SQLite file in autocommit mode; hold `exclusive` until it is closed.

    A locked file is waited for `patience_s`, and reading ends after twice that. A file that
    cannot be written here is opened for reading.
    """
    # mode=rw: SQLite itself would make a missing file readable by others.
    uri = f"file:{quote(os.fsencode(path.absolute()))}?{_mode(path)}"
    connection = sqlite3.connect(
        uri, timeout=patience_s, isolation_level=None, check_same_thread=False, uri=True
    )
    # Damaged text must reach the check of its row, not end the whole query.
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    # A file can be made so that a plain query of it has no end.
    end = time.monotonic() + 2 * patience_s
    connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    for pragma in ("foreign_keys=ON", "trusted_schema=OFF", "cell_size_check=ON"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


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
    effective = os.access in os.supports_effective_ids
    return real.exists() and not all(
        os.access(place, os.W_OK, effective_ids=effective) for place in (real, real.parent)
    )


_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


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
            raise _no_file(path, f"a link to {path.readlink()}, which is missing") from None
        return False
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "special")
        raise _no_file(path, f"{kind}, and no file")
    return status.st_size > 0


def _no_file(path: Path, kind: str) -> StoreError:
    return StoreError(f"store {path}: is {kind}; name a file, {ELSEWHERE}")


def is_ours(path: Path) -> bool:
    """Tell whether a regular file carries our application id, however damaged the rest is.

    Hold `exclusive`: closing a file drops the locks that SQLite has on it in this process.
    """
    with path.open("rb") as file:
        return file.read(_ID_PLACE.stop)[_ID_PLACE] == APPLICATION_ID.to_bytes(4, "big")


def identity(path: Path) -> tuple[int, int] | None:
    """Identify the file at the path; None where there is none."""
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


def schema_problem(rows: Iterable[tuple[Any, ...]], expected: Iterable[str]) -> str | None:
    """Return why the rows of `SCHEMA_QUERY` are not the tables of `expected`; None if they are."""
    wanted = {_name_of(sql): schema_digest([sql]) for sql in expected}
    actual = [row for row in rows if row[1] not in _OF_SQLITE or row[0] != "table"]
    if wanted.keys() - {name for _, name, _ in actual}:
        return "a table is missing"
    for kind, name, sql in actual:
        if name not in wanted:
            return f"{kind} {name!a} is none of the store's"
        if schema_digest([sql]) != wanted[name]:
            return f"{kind} {name!a} is not the plain table that the store makes"
    return "a table is there twice" if len(actual) != len(wanted) else None


def schema_digest(statements: Iterable[Any]) -> str:
    """Digest the words of a schema's statements, in any order."""
    words = sorted(" ".join(re.findall(r"\w+", str(sql).lower())) for sql in statements)
    return digest(*words)


def _name_of(statement: str) -> str:
    words: list[str] = re.findall(r"\w+", statement)
    return words[words.index("INDEX" if "INDEX" in words[:3] else "TABLE") + 1]
