"""Database and system errors as one-line `StoreError`s that say what to do."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from asmtune.errors import StoreError
from asmtune.store.codec import printable

_ELSEWHERE: Final = "or set ASMTUNE_CACHE_DIR to another folder"

_ADVICE: Final = {
    sqlite3.SQLITE_FULL: f"free some space, {_ELSEWHERE}",
    sqlite3.SQLITE_IOERR: f"check the disk's space and health, {_ELSEWHERE}",
    sqlite3.SQLITE_READONLY: f"make the file and its folder writable, {_ELSEWHERE}",
    sqlite3.SQLITE_PERM: f"make the file and its folder writable, {_ELSEWHERE}",
    sqlite3.SQLITE_CANTOPEN: f"make the file and its folder readable and writable, {_ELSEWHERE}",
    sqlite3.SQLITE_BUSY: "another process has held it for too long: try again when that has ended",
    sqlite3.SQLITE_LOCKED: "another thread has held it for too long: try again",
    sqlite3.SQLITE_TOOBIG: "the record is larger than SQLite's limit: keep fewer samples",
}

# SQLITE_ERROR is what a missing table gives: all of the store's SQL is fixed,
# so that it can only mean that the file does not hold the store's tables. Nor
# can what the store writes break a constraint, but where rows and indexes disagree.
_DAMAGED: Final = frozenset(
    {
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_NOTADB,
    }
)


class DamagedStoreError(StoreError):
    """The file is not a readable store: random bytes, truncated, or another program's.

    Attributes:
        detail: what the database said of it.
    """

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail

    def __str__(self) -> str:
        # With two arguments OSError takes the first for an error number.
        return str(self.args[0])


def damaged(place: str, detail: str) -> DamagedStoreError:
    """The error of a file that is no store."""
    return DamagedStoreError(
        f"store {place}: not a readable asmtune store ({detail}); move the file away "
        "to start afresh (tuning does so by itself)",
        detail,
    )


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Turns what the database or the system raises into a `StoreError` about `place`."""
    try:
        yield
    except StoreError:
        raise
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise _database_error(place, error) from error
    except UnicodeDecodeError as error:
        # The sqlite3 module, over a message that quotes the damaged bytes.
        raise damaged(place, "names that are not text") from error
    except OSError as error:
        raise system_error(f"store {place}", error) from error


def _database_error(place: str, error: Exception) -> StoreError:
    cause = error.orig if isinstance(error, DBAPIError) else error
    text = printable(" ".join(str(cause).split()))
    code = getattr(cause, "sqlite_errorcode", None)
    if code is None:
        return StoreError(f"store {place}: {text}; check that the database is up and its URL right")
    primary = code & 0xFF
    if primary in _DAMAGED or code == sqlite3.SQLITE_IOERR_SHORT_READ:
        return damaged(place, text)
    return StoreError(
        f"store {place}: {text}; {_ADVICE.get(primary, 'see SQLite code ' + str(code))}"
    )


def system_error(subject: str, error: OSError, elsewhere: str = _ELSEWHERE) -> StoreError:
    """A failed file operation on `subject`, with advice."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        advice = "free some space"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        advice = "a file stands where a folder should be: move it away"
    else:
        advice = "make it and its folder readable and writable"
    return StoreError(f"{subject}: {error.strerror or error}; {advice}, {elsewhere}")
