"""Stores to test on: an SQLite file, and a schema on a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from postgres_server import Server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server of the session's own."""
    server = Server.start()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store is to be: each test runs on both."""
    if request.param == "sqlite":
        return str(tmp_path / "cache" / "store.sqlite")
    server: Server = request.getfixturevalue("postgres")
    return server.new_store()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everyone may enter, as pytest's own are not."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
