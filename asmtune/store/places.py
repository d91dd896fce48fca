"""Where a store is: the path of an SQLite file, or the URL of another database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from asmtune.errors import InputError
from asmtune.store import tables
from asmtune.store.faults import translated


def home(where: str | Path) -> Path | URL:
    """The path or the URL that a user named; the URL of an SQLite file is a path.

    Raises:
        InputError: not a URL.
    """
    text = str(where)
    if "://" not in text:
        return Path(where).expanduser()
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise _bad_url(text, error) from error
    if url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
        return Path(str(url.database))
    return url


def _bad_url(text: str, error: Exception) -> InputError:
    # Only the part before "://": the rest may hold a password.
    return InputError(
        f"store URL {text.split('://')[0]}://...: {' '.join(str(error).split())}; "
        "correct it, install its driver, or give the path of a file"
    )


def served(url: URL) -> tuple[Engine, str]:
    """Engine and name of a database without a file; its tables made where missing.

    Raises:
        InputError: its driver is not installed.
        StoreError: the database cannot be reached or written.
    """
    try:
        engine = create_engine(url)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise _bad_url(str(url), error) from error
    place = url.render_as_string(hide_password=True)
    with translated(place), engine.begin() as connection:
        tables.create(connection)
    return engine, place
