"""`Database`: transactions on an SQLite file or a server, with retries and replaced files."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from asmtune.base.errors import StoreError
from asmtune.store import faults, files, location
from asmtune.store.faults import DamagedStoreError, translated

_T = TypeVar("_T")

OnCorrupt = Literal["error", "set_aside"]

_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.5
_MOST_REPLACEMENTS: Final = 2


@dataclass(frozen=True, kw_only=True)
class OpenMode:
    """Options that a store is opened with.

    Attributes:
        on_corrupt: "error" raises where the file is damaged and leaves it
            alone; "set_aside" renames it, warns once (`StoreWarning`) and
            starts afresh. A damaged row is likewise kept or deleted.
        patience_s: seconds that one call waits for a lock or a server, at most.
    """

    on_corrupt: OnCorrupt = "error"
    patience_s: float = files.BUSY_SECONDS


@dataclass(frozen=True)
class Database:
    """The database of a store, which runs each call in a transaction of its own.

    Attributes:
        engine: engine of the database.
        place: name of the store in messages; holds no password.
        access: options that it was opened with.
        path: path of an SQLite file; None for a server.
    """

    engine: Engine
    place: str
    access: OpenMode
    path: Path | None = None

    @classmethod
    def at(cls, where: str | Path, access: OpenMode) -> Self:
        """Make the database of a file or a URL; nothing is opened yet.

        Raises:
            InputError: the URL cannot be read, or names no driver that is installed.
        """
        parsed = location.parse(where)
        if isinstance(parsed, Path):
            return cls(files.engine_of(parsed, access.patience_s), str(parsed), access, parsed)
        engine = location.server_engine(parsed, access.patience_s)
        return cls(engine, location.shown(parsed), access)

    def transact(self, work: Callable[[Connection], _T], *, writes: bool = False) -> _T:
        """Run `work` in a transaction; again on a fresh file where this one is damaged.

        Raises:
            StoreError: the database cannot be reached, read or written.
        """
        path = self.path
        if path is None:
            return self.once(work, writes=writes)
        for _ in range(_MOST_REPLACEMENTS):
            with translated(self.place):
                seen = files.ensure(path, self.access.patience_s)
            try:
                return self.once(work, writes=writes)
            except StoreError as error:
                with translated(self.place):
                    self._set_aside(error, path, seen)
        return self.once(work, writes=writes)

    def _set_aside(self, error: StoreError, path: Path, seen: tuple[int, int] | None) -> None:
        """Set the file aside where the error means that it is damaged; raise other errors again."""
        if files.identity(path) != seen:
            return  # another process has set it aside, or deleted it, meanwhile
        if self.access.on_corrupt == "error" or not isinstance(error, DamagedStoreError):
            raise error
        files.set_aside(path, seen, error.detail, self.access.patience_s)

    def once(self, work: Callable[[Connection], _T], *, writes: bool = False) -> _T:
        """Run `work` in a transaction; set nothing aside.

        A server ends transactions that conflict, and refuses connections above its
        limit: these are retried.

        Raises:
            StoreError: as `transact`.
        """
        engine = files.writing(self.engine) if writes else self.engine
        start, pause = time.monotonic(), _FIRST_PAUSE_S
        while True:
            try:
                with translated(self.place), engine.begin() as connection:
                    return work(connection)
            except StoreError as error:
                if not self._may_retry(error, time.monotonic() - start):
                    raise
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _may_retry(self, error: StoreError, spent_s: float) -> bool:
        cause = error.__cause__
        if not isinstance(cause, DBAPIError) or self.engine.dialect.name == "sqlite":
            return False
        if faults.is_refused_connection(cause):
            return spent_s < min(self.access.patience_s, location.CONNECT_SECONDS)
        return faults.is_conflict(cause) and spent_s < self.access.patience_s
