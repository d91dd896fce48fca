"""Stores to test on: an SQLite file, and a schema on a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from postgres_server import Server

from asmtune.store.database import Store


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


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    """An empty store."""
    with Store.open(where) as opened:
        yield opened


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """Share a store with all examples of a property: each meets the others' records."""
    if request.param == "sqlite":
        url = str(tmp_path_factory.mktemp("shared") / "store.sqlite")
    else:
        url = request.getfixturevalue("postgres").new_store()
    with Store.open(url) as store:
        yield store
