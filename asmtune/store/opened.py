"""A store that is open: made where missing, of this version, and closed again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import Connection

from asmtune.store import checks, files, tables
from asmtune.store.transactions import Access, Database, OnCorrupt

_T = TypeVar("_T")


class OpenStore:
    """What every call of a store stands on: its database, which is of this version."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(
        cls,
        where: str | Path,
        *,
        on_corrupt: OnCorrupt = "error",
        patience_s: float = files.BUSY_SECONDS,
    ) -> Self:
        """The store in a file, or in the database that a URL names; made where missing.

        One of an older version is brought up to date, in one transaction.

        Args:
            where: path of an SQLite file, or a URL such as
                `postgresql://user@host/name`.
            on_corrupt: see `Access`.
            patience_s: see `Access`.

        Raises:
            InputError: the URL names no database driver that is installed.
            StoreError: the store cannot be read or made, or is of a newer
                version than this one knows.
        """
        database = Database.at(where, Access(on_corrupt=on_corrupt, patience_s=patience_s))

        def current(connection: Connection) -> bool:
            return checks.is_current(
                connection, database.place, made_whole=database.path is not None
            )

        def bring_up_to_date(connection: Connection) -> None:
            if not current(connection):  # another process may have been faster
                tables.bring_up_to_date(connection)

        if not database.transact(current):
            database.transact(bring_up_to_date, writes=True)
        return cls(database)

    @property
    def place(self) -> str:
        """What messages call it; holds no password."""
        return self._database.place

    def close(self) -> None:
        """Lets go of the database; a file is let go after each call anyway."""
        self._database.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def transact(self, work: Callable[[Connection], _T], *, writes: bool = False) -> _T:
        """Runs `work` in a transaction, which may write where told; for this room alone.

        Raises:
            StoreError: the store cannot be read or written.
        """
        return self._database.transact(work, writes=writes)
