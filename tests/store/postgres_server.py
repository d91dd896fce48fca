"""A throwaway PostgreSQL server on a loopback port, as its own user."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import URL, create_engine, make_url
from sqlalchemy.pool import NullPool

USER: Final = "postgres"
GUARDED: Final = "guarded"
PASSWORD: Final = "s3cret/of the @guard"

# Whoever may connect is on this machine; one role has a password, to prove that none is shown.
_RULES: Final = f"""
host all {GUARDED} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""

# Nothing of it outlives the tests, so that it need not reach the disk.
_OPTIONS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "lc_messages": "C",
}


class Server:
    """A running server; made by `start`."""

    def __init__(self, folder: Path, port: int, process: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.port = port
        self.process = process
        self._names = itertools.count()

    @classmethod
    def start(cls) -> Server:
        """A server with an empty cluster; the test is skipped where there is no PostgreSQL."""
        tools = _tools()
        folder = Path(tempfile.mkdtemp(prefix="asmtune-postgres-"))
        data = folder / "data"
        identity = _identity(folder)
        initdb = [tools / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8"]
        subprocess.run(
            [*initdb, "--locale=C.UTF-8", "--no-sync"],
            check=True, capture_output=True, cwd=folder, **identity,
        )  # fmt: skip
        (data / "pg_hba.conf").write_text(_RULES)
        for _ in range(5):  # another program may take the port in between
            port = _free_port()
            options = [f"--{name}={value}" for name, value in _OPTIONS.items()]
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen(
                    [tools / "postgres", "-D", data, "-p", str(port), *options],
                    stdout=log, stderr=log, cwd=folder, **identity,
                )  # fmt: skip
            server = cls(folder, port, process)
            if server._answers(tools):
                return server
        raise AssertionError((folder / "log").read_text())

    def _answers(self, tools: Path) -> bool:
        ready = [tools / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "1"]
        for _ in range(300):
            if self.process.poll() is not None:
                return False
            if subprocess.run(ready, check=False).returncode == 0:
                return True
            self._pause()
        return False

    def _pause(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0.05)

    def stop(self) -> None:
        """End the server at once and delete its files."""
        self.process.send_signal(3)  # SIGQUIT: "immediate shutdown"
        self.process.wait()
        shutil.rmtree(self.folder)

    def execute(self, statement: str, where: str | None = None) -> None:
        """Execute a statement as the superuser, outside a transaction, in a schema if given."""
        engine = create_engine(driven(where or self._url()), poolclass=NullPool)
        with engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql(statement)

    def new_store(self) -> str:
        """The URL of an empty schema, which is made a hundred times faster than a database."""
        name = f"store{next(self._names)}"
        self.execute(f"CREATE SCHEMA {name}")
        return f"{self._url()}?options=-csearch_path%3D{name}"

    def _url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"


def driven(where: str) -> URL:
    """A URL for SQLAlchemy alone, with the driver that the store takes."""
    return make_url(where).set(drivername="postgresql+psycopg")


def schema_of(where: str) -> str:
    """The schema that a URL of `new_store` names."""
    return where.rpartition("%3D")[2]


def as_guarded(where: str, password: str) -> str:
    """The URL for the role that needs a password."""
    url = make_url(where).set(username=GUARDED, password=password)
    return url.render_as_string(hide_password=False)


def _tools() -> Path:
    """The folder of the server's programs; the newest of several."""
    pytest.importorskip("psycopg", reason="no psycopg: pip install '.[postgresql]'")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    on_path = shutil.which("initdb")
    for folder in ([Path(on_path).resolve().parent] if on_path else []) + debian:
        if all((folder / name).is_file() for name in ("initdb", "postgres", "pg_isready")):
            return folder
    pytest.skip("no PostgreSQL server here: apt-get install postgresql")


def _version(folder: Path) -> float:
    text = folder.parent.name
    return float(text) if text.replace(".", "", 1).isdigit() else 0.0


def _identity(folder: Path) -> dict[str, Any]:
    """Who runs the server, which refuses root: the postgres user then, who gets the folder."""
    if os.getuid() != 0:
        return {}
    try:
        entry = pwd.getpwnam(USER)
    except KeyError:
        shutil.rmtree(folder)
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
