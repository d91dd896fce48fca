"""Places of stores, and what is wrong there: one-line `StoreError`s that say what to do.

Messages show a store by its path or its URL, without the password.
"""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    SQLAlchemyError,
)

from asmtune.base.errors import InputError, StoreError
from asmtune.base.json_codec import printable
from asmtune.base.trust import STORE_ELSEWHERE, fault_line
from asmtune.store.sqlite_file import ELSEWHERE

POSTGRESQL: Final = ("postgresql", "postgres")


def parse(where: str | Path) -> Path | URL:
    """Parse the path or the URL that a user named; the URL of an SQLite file becomes a path.

    Raises:
        InputError: not a URL, or no name that a file or a database can have.
    """
    text = str(where)
    is_url = "://" in text
    if "\0" in (unquote(text) if is_url else text):
        place = printable(text.split("://")[0])  # the rest may hold a password
        raise InputError(f"store {place}: NUL in its name, which nothing can hold: leave it out")
    if not is_url:
        return Path(where).expanduser()
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        # The parser's message may quote a part of the password.
        raise bad_url(text, "cannot be read; write @ : / in a password as %40 %3A %2F") from error
    if "@" in (url.host or ""):
        raise bad_url(text, "has two @; write @ in a password as %40")
    if url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
        return Path(str(url.database)).expanduser()
    if url.drivername in POSTGRESQL and importlib.util.find_spec("psycopg") is not None:
        return url.set(drivername="postgresql+psycopg")
    return url


def shown(where: str | Path | URL) -> str:
    """Show a path or URL in messages: without password and options.

    Raises:
        InputError: not a URL.
    """
    location = where if isinstance(where, URL) else parse(where)
    if isinstance(location, Path):
        return str(location)
    return location.set(query={}).render_as_string(hide_password=True)


def bad_url(text: str, problem: str) -> InputError:
    """Build the error of a URL that cannot be used; it quotes nothing but the scheme."""
    # Only the part before "://": the rest may hold a password.
    scheme = text.split("://")[0]
    driver = "its driver"
    if scheme.split("+")[0] in POSTGRESQL:
        driver = "its driver (pip install '.[postgresql]' in a clone of asmtune)"
    return InputError(
        f"store URL {scheme}://...: {problem}; correct it, install {driver}, "
        "or give the path of a file"
    )


_ADVICE: Final = {
    sqlite3.SQLITE_FULL: f"free some space, {ELSEWHERE}",
    sqlite3.SQLITE_IOERR: f"check the disk's space and health, {ELSEWHERE}",
    sqlite3.SQLITE_READONLY: f"it is read-only here: make the file and its folder writable, "
    f"{ELSEWHERE}",
    sqlite3.SQLITE_PERM: f"make the file and its folder writable, {ELSEWHERE}",
    sqlite3.SQLITE_CANTOPEN: f"make the file and its folder readable and writable, {ELSEWHERE}",
    sqlite3.SQLITE_BUSY: "another process has held it for too long: try again when that has ended",
    sqlite3.SQLITE_LOCKED: "another thread has held it for too long: try again",
    sqlite3.SQLITE_INTERRUPT: f"reading took too long: move the file away, {ELSEWHERE}",
    sqlite3.SQLITE_TOOBIG: "the record is larger than SQLite's limit: keep fewer samples",
}

# A missing table gives SQLITE_ERROR. The store's SQL is fixed, so that it can only mean that the
# file does not hold the store's tables. Likewise the store's rows can break a constraint only
# where rows and indexes disagree.
_DAMAGED: Final = frozenset(
    {
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_NOTADB,
    }
)


# By SQLSTATE code, as PostgreSQL gives it.
_SERVER_ADVICE: Final = {
    "25006": "the database may only be read: name its primary server",
    "42501": "let its owner grant the right, or create the tables",
    "53100": "free some space on the database's server",
    "57014": "another session has held it for too long: try again when that has ended",
}

# Two processes make the tables at once: one of them finds that they exist.
_EXISTS_ALREADY: Final = frozenset({"42701", "42710", "42P07"})


class DamagedStoreError(StoreError):
    """The file is not a readable store: random bytes, truncated, or another program's.

    Attributes:
        detail: the database's own message.
    """

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail

    def __str__(self) -> str:
        # With two arguments OSError takes the first for an error number.
        return str(self.args[0])


def damaged(place: str, detail: str) -> DamagedStoreError:
    """Make the error of a file or a database that is not a store."""
    advice = f"move the file away to start afresh, {ELSEWHERE}"
    if "://" in place:
        advice = "name a database of its own for the store"
    return DamagedStoreError(
        f"store {place}: not a readable asmtune store ({detail}); {advice}", detail
    )


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Turn errors of the database and the system into a `StoreError` about `place`."""
    try:
        yield
    except StoreError:
        raise
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise _database_error(place, error) from error
    except UnicodeDecodeError as error:
        # Raised by the sqlite3 module for a message that quotes damaged bytes.
        raise damaged(place, "names that are not text") from error
    except OSError as error:
        raise StoreError(fault_line("store", place, error, STORE_ELSEWHERE)) from error


def is_conflict(error: DBAPIError) -> bool:
    """Tell whether another one was in a transaction's way, so that it may be retried."""
    state, code = _state(error), getattr(error.orig, "sqlite_errorcode", None)
    if code is not None:
        return bool(code & 0xFF == sqlite3.SQLITE_BUSY)
    return isinstance(error, IntegrityError) or state[:2] == "40" or state in _EXISTS_ALREADY


def is_refused_connection(error: DBAPIError) -> bool:
    """Tell whether no connection was made, as when the server has too many or is starting."""
    return isinstance(error, OperationalError) and error.statement is None


def _state(error: DBAPIError) -> str:
    """Return the SQLSTATE code of an error; empty where the driver gives none."""
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    return str(state or "")


def _database_error(place: str, error: Exception) -> StoreError:
    cause = error.orig if isinstance(error, DBAPIError) else error
    text = printable(" ".join(str(cause).split()))
    code = getattr(cause, "sqlite_errorcode", None)
    if code is None:
        state = _state(error) if isinstance(error, DBAPIError) else ""
        advice = _SERVER_ADVICE.get(state, "check that the database is up and its URL right")
        return StoreError(f"store {place}: {text}; {advice}")
    primary = code & 0xFF
    if primary in _DAMAGED or code == sqlite3.SQLITE_IOERR_SHORT_READ:
        return damaged(place, text)
    return StoreError(f"store {place}: {text}; {_ADVICE.get(primary, f'see SQLite code {code}')}")
