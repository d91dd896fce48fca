"""Where a store is: the path or the URL that a user names, and how messages show it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from asmtune.base.errors import InputError
from asmtune.base.json_codec import printable

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
