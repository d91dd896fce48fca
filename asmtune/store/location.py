"""Location of a store: the path of an SQLite file, or the URL of another database."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from asmtune.base.errors import InputError

CONNECT_SECONDS: Final = 5.0
"""Seconds to retry a server that is down or out of connections, at most."""

_POSTGRESQL: Final = ("postgresql", "postgres")

# A server that vanishes silently is noticed after some 10 s: TCP alone takes hours.
_KEEPALIVES: Final = {"keepalives_idle": 4, "keepalives_interval": 2, "keepalives_count": 3}


def parse(where: str | Path) -> Path | URL:
    """Parse the path or the URL that a user named; the URL of an SQLite file becomes a path.

    Raises:
        InputError: not a URL.
    """
    text = str(where)
    if "://" not in text:
        return Path(where).expanduser()
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        # The parser's message may quote a part of the password.
        raise _bad_url(text, "cannot be read; write @ : / in a password as %40 %3A %2F") from error
    if "@" in (url.host or ""):
        raise _bad_url(text, "has two @; write @ in a password as %40")
    if url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
        return Path(str(url.database)).expanduser()
    if url.drivername in _POSTGRESQL and importlib.util.find_spec("psycopg") is not None:
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


def _bad_url(text: str, problem: str) -> InputError:
    # Only the part before "://": the rest may hold a password.
    scheme = text.split("://")[0]
    driver = "its driver"
    if scheme.split("+")[0] in _POSTGRESQL:
        driver = "its driver (pip install 'asmtune[postgresql]')"
    return InputError(
        f"store URL {scheme}://...: {problem}; correct it, install {driver}, "
        "or give the path of a file"
    )


def server_engine(url: URL, patience_s: float) -> Engine:
    """Make an engine on a server's database, or one in memory; it does not connect yet.

    Only a database in memory has a pool. Elsewhere a connection lives for one call, so
    that none is carried over a fork, and the ranks of a large job do not use up the
    server's connections while they are idle.

    Raises:
        InputError: its driver is not installed.
    """
    try:
        if url.get_backend_name() == "sqlite":
            return create_engine(url)
        if url.get_backend_name() not in _POSTGRESQL:
            return create_engine(url, poolclass=NullPool)
        return _postgresql(url, patience_s)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise _bad_url(url.drivername + "://", " ".join(str(error).split())) from error


def _postgresql(url: URL, patience_s: float) -> Engine:
    """Make an engine whose calls end in time, and each see one state of the database."""
    connect_s = max(2, math.ceil(min(patience_s, CONNECT_SECONDS)))  # 2 s is libpq's least
    options = {"connect_timeout": connect_s, "client_encoding": "utf8", **_KEEPALIVES}
    engine = create_engine(
        url,
        poolclass=NullPool,
        # A record takes three queries, which must see the same state of it.
        isolation_level="REPEATABLE READ",
        connect_args={name: value for name, value in options.items() if name not in url.query},
    )

    def limit(connection: Connection) -> None:
        # Set in each transaction: connection poolers refuse it as an option of the connection.
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {math.ceil(1e3 * patience_s)}")

    event.listen(engine, "begin", limit)
    return engine
