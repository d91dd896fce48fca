"""`Database`: transactions on an SQLite file or a server, with retries and replaced files.

First the engines of servers, then the SQLite
file: made whole, private from the start, set aside if damaged; last `Database`.
"""

from __future__ import annotations

import math
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, Literal, Self, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from asmtune.base.atomic_write import make_private
from asmtune.base.errors import StoreError
from asmtune.store import tables
from asmtune.store.lookup import StoreWarning
from asmtune.store.places import (
    POSTGRESQL,
    DamagedStoreError,
    bad_url,
    is_conflict,
    is_refused_connection,
    parse,
    shown,
    translated,
)
from asmtune.store.sqlite_file import (
    alone,
    connect,
    connecting,
    creation_lock,
    holds_content,
    identity,
    is_ours,
    is_read_only,
    keep_for_ever,
    without_limit,
)

_T = TypeVar("_T")

OnCorrupt = Literal["error", "set_aside"]

_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.5
_MOST_REPLACEMENTS: Final = 2

CONNECT_SECONDS: Final = 5.0
"""Seconds to retry a server that is down or out of connections, at most."""


# A server that vanishes silently is noticed after some 10 s: TCP alone takes hours.
_KEEPALIVES: Final = {"keepalives_idle": 4, "keepalives_interval": 2, "keepalives_count": 3}


def server_engine(url: URL, patience_s: float) -> Engine:
    """Make an engine on a PostgreSQL database; it does not connect yet.

    Calls end in time, and each sees one state of the database. A connection lives for one call, so
    that none is carried over a fork, and the ranks of a large job do not use up the server's
    connections while they are idle.

    Raises:
        InputError: it is another database's, or its driver is not installed.
    """
    scheme = f"{url.drivername}://"
    if url.get_backend_name() not in POSTGRESQL:
        raise bad_url(scheme, "is of no database that asmtune knows: files and PostgreSQL")
    connect_s = max(2, math.ceil(min(patience_s, CONNECT_SECONDS)))  # 2 s is libpq's least
    options = {"connect_timeout": connect_s, "client_encoding": "utf8", **_KEEPALIVES}
    try:
        engine = create_engine(
            url,
            poolclass=NullPool,
            # A record takes three queries, which must see the same state of it.
            isolation_level="REPEATABLE READ",
            connect_args={name: value for name, value in options.items() if name not in url.query},
        )
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise bad_url(scheme, " ".join(str(error).split())) from error

    def limit(connection: Connection) -> None:
        # Set in each transaction: connection poolers refuse it as an option of the connection.
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {math.ceil(1e3 * patience_s)}")

    event.listen(engine, "begin", limit)
    return engine


BUSY_SECONDS: Final = 60.0
"""Seconds that a call waits for another process's lock, by default."""


def engine_of(path: Path, patience_s: float = BUSY_SECONDS) -> Engine:
    """Make an engine on an existing file, whose reads end after twice `patience_s`.

    It has no pool: a connection lives for one transaction, so that none is carried
    over a fork and none keeps a file open that was set aside.
    """
    return create_engine("sqlite://", creator=lambda: connect(path, patience_s), poolclass=NullPool)


@contextmanager
def begun(engine: Engine, *, writes: bool) -> Iterator[Connection]:
    """Begin a transaction, on a file one that may write or one that only reads."""
    with engine.begin() as connection:
        if _is_file(engine):
            # IMMEDIATE: a transaction that first reads and then writes could otherwise
            # fail at once, busy timeout or not, when another process wrote in between.
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
            if writes:
                unlimited(connection)
        yield connection


def _is_file(place: Engine | Connection) -> bool:
    return place.dialect.name == "sqlite"


@contextmanager
def _transaction(engine: Engine, patience_s: float, *, writes: bool) -> Iterator[Connection]:
    """Begin a transaction, and end it unless a child that was forked in it gets there."""
    alone_writes = writes and _is_file(engine)
    with connecting(patience_s, writes=alone_writes), ExitStack() as open_here:
        process = os.getpid()
        connection = open_here.enter_context(begun(engine, writes=writes))
        try:
            yield connection
        finally:
            if os.getpid() != process:
                keep_for_ever(open_here.pop_all())  # the parent's: it will commit and close


def unlimited(connection: Connection) -> None:
    """Let a transaction on a file take the time that it needs; those of servers are as before."""
    if _is_file(connection):
        driver = connection.connection.driver_connection
        assert driver is not None
        without_limit(driver)


def ensure(path: Path, patience_s: float = BUSY_SECONDS) -> tuple[int, int] | None:
    """Make folder (0700) and file (0600) where missing; return the file's identity.

    An empty file is taken for a missing one.

    Raises:
        StoreError: something that is no file is in the file's place.
    """
    if not holds_content(path):
        real = Path(os.path.realpath(path))
        make_private(real.parent)
        with creation_lock(real, patience_s):
            if not holds_content(real):
                _create(real)
    return identity(path)


def set_aside(
    path: Path, seen: tuple[int, int] | None, reason: str, patience_s: float = BUSY_SECONDS
) -> None:
    """Rename a damaged file of ours and SQLite's files beside it; warn once.

    Nothing is done where another process has put a fresh file in its place, so that
    the file is no longer the one `seen`.
    """
    path = Path(os.path.realpath(path))
    with creation_lock(path, patience_s):
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
    fresh = path.with_name(f".{path.name}.asmtune-new")
    _unlink_all(fresh)  # left by a process that was killed here; the lock excludes others
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with closing(connect(fresh, BUSY_SECONDS)) as raw:
            raw.execute("PRAGMA journal_mode=WAL")  # persistent: stored in the file
        with begun(engine_of(fresh), writes=True) as connection:
            tables.create(connection)
        fresh.rename(path)
    finally:
        _unlink_all(fresh)


def _unlink_all(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class Database:
    """A database whose calls run in a transaction each; made with `open`.

    Attributes:
        engine: engine of the database.
        place: name of the store in messages; holds no password.
        path: path of an SQLite file; None for a server.
        on_corrupt: "error" raises where the file is damaged and leaves it alone; "set_aside"
            renames it, warns once (`StoreWarning`) and starts afresh. A damaged row is
            kept by "error", and deleted by "set_aside".
        patience_s: seconds that one call waits for a lock or a server, at most.
    """

    engine: Engine
    place: str
    path: Path | None
    on_corrupt: OnCorrupt
    patience_s: float

    @classmethod
    def open(
        cls,
        where: str | Path,
        *,
        on_corrupt: OnCorrupt = "error",
        patience_s: float = BUSY_SECONDS,
    ) -> Self:
        """Open the database in a file, or the one that a URL names; make it where missing.

        Args:
            where: path of an SQLite file, or a URL such as `postgresql://user@host/name`.
            on_corrupt: as the attribute.
            patience_s: as the attribute.

        Raises:
            InputError: the URL cannot be read, or names no driver that is installed.
            StoreError: the store cannot be read or made, or a newer asmtune has written it.
        """
        parsed = parse(where)
        if isinstance(parsed, Path):
            path, engine = parsed, engine_of(parsed, patience_s)
        else:
            path, engine = None, server_engine(parsed, patience_s)
        database = cls(engine, shown(parsed), path, on_corrupt, patience_s)
        database._make_tables()
        return database

    def close(self) -> None:
        """Disconnect from the database; a connection is closed after each call anyway."""
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_tables(self) -> None:
        """Check the store's tables; make them where they are missing."""
        present = partial(tables.are_present, place=self.place)

        def make(connection: Connection) -> None:
            if not present(connection):  # another process may have been faster
                tables.create(connection)

        if not self.transact(present):
            self.transact(make, writes=True)

    def transact(self, work: Callable[[Connection], _T], *, writes: bool = False) -> _T:
        """Run `work` in a transaction; again on a fresh file where this one is damaged.

        Raises:
            StoreError: the database cannot be reached, read or written.
        """
        path = self.path
        if path is None:
            return self.once(work, writes=writes)
        for _ in range(_MOST_REPLACEMENTS):
            with translated(self.place), connecting(self.patience_s):
                seen = ensure(path, self.patience_s)
            try:
                return self.once(work, writes=writes)
            except StoreError as error:
                with translated(self.place), alone(self.patience_s):
                    self._replace(error, path, seen)
        return self.once(work, writes=writes)

    @property
    def sets_aside(self) -> bool:
        """Tell whether damage is set aside: where the user wants it and the file can be written."""
        writable = self.path is None or not is_read_only(self.path)
        return writable and self.on_corrupt == "set_aside"

    def _replace(self, error: StoreError, path: Path, seen: tuple[int, int] | None) -> None:
        """Set a file of ours aside where the error means damage; raise other errors again."""
        if seen is None or identity(path) != seen:
            return  # another process is setting it aside, has done so, or has deleted it
        try:
            if not (isinstance(error, DamagedStoreError) and self.sets_aside and is_ours(path)):
                raise error
        except FileNotFoundError:
            return  # another process has just set it aside
        set_aside(path, seen, error.detail, self.patience_s)

    def once(self, work: Callable[[Connection], _T], *, writes: bool = False) -> _T:
        """Run `work` in a transaction; set nothing aside.

        A server ends transactions that conflict, and refuses connections above its limit, and
        another process may lock a file: these are retried.

        Raises:
            StoreError: as `transact`.
        """
        begin = partial(_transaction, self.engine, self.patience_s, writes=writes)
        start, pause = time.monotonic(), _FIRST_PAUSE_S
        while True:
            try:
                with translated(self.place), begin() as connection:
                    return work(connection)
            except StoreError as error:
                if not self._may_retry(error, time.monotonic() - start):
                    raise
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _may_retry(self, error: StoreError, spent_s: float) -> bool:
        cause = error.__cause__
        if not isinstance(cause, DBAPIError):
            return False
        if self.path is None and is_refused_connection(cause):
            return spent_s < min(self.patience_s, CONNECT_SECONDS)
        return is_conflict(cause) and spent_s < self.patience_s
