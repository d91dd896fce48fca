"""A store on a real PostgreSQL server: what a file does not have."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from children import finish, start
from postgres_server import GUARDED, PASSWORD, Server, as_guarded, driven, schema_of
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool
from store_records import PROVENANCE, record

from asmtune.base.errors import StoreError
from asmtune.store.database import Store
from asmtune.store.lookup import StoreWarning
from asmtune.store.safe_store import SafeStore

KEY = record().key


@pytest.fixture
def url(postgres: Server) -> str:
    """A store that is not there yet."""
    return postgres.new_store()


@pytest.fixture
def role(postgres: Server, url: str) -> Iterator[str]:
    """The URL with the user of a role that may use the schema, and no password."""
    quoted = PASSWORD.replace("'", "''")
    postgres.execute(f"CREATE ROLE {GUARDED} LOGIN PASSWORD '{quoted}'")
    postgres.execute(f"GRANT USAGE ON SCHEMA {schema_of(url)} TO {GUARDED}")
    yield url
    postgres.execute(f"DROP OWNED BY {GUARDED}")
    postgres.execute(f"DROP ROLE {GUARDED}")


def test_password(role: str, postgres: Server) -> None:
    """The right password opens the store, a wrong one is refused, and none is ever shown."""
    with pytest.raises(StoreError, match="password authentication failed") as caught:
        Store.open(as_guarded(role, "wr0ng"), patience_s=0.1)
    assert "wr0ng" not in str(caught.value)
    assert f"{GUARDED}:***@127.0.0.1" in str(caught.value)
    right = as_guarded(role, PASSWORD)
    with pytest.raises(StoreError, match=r"permission denied.*grant the right") as caught:
        Store.open(right)
    assert PASSWORD not in str(caught.value)
    postgres.execute(f"GRANT CREATE ON SCHEMA {schema_of(role)} TO {GUARDED}")
    with Store.open(right) as store:
        assert PASSWORD not in store.place + repr(store)
        store.save(record())
        assert store.find(KEY) == record()
    tables = f"ALL TABLES IN SCHEMA {schema_of(role)}"
    postgres.execute(f"REVOKE INSERT, UPDATE, DELETE ON {tables} FROM {GUARDED}")
    with Store.open(right) as store:  # who may only read looks configs up
        assert store.lookup(KEY, PROVENANCE).outcome == "hit"
        with pytest.raises(StoreError, match="permission denied for table"):
            store.save(record(1))


def test_table_that_another_session_holds(url: str) -> None:
    """A lock held for too long costs a `SafeStore` one warning, after the time that is set."""
    Store.open(url).close()
    engine = create_engine(driven(url), poolclass=NullPool)
    with engine.begin() as holder:
        holder.exec_driver_sql("LOCK TABLE keys IN ACCESS EXCLUSIVE MODE")
        safe = SafeStore(url, patience_s=0.2)
        with pytest.warns(StoreWarning, match="another session has held it for too long") as caught:
            assert safe.lookup(KEY, PROVENANCE).outcome == "miss"
        assert safe.lookup(KEY, PROVENANCE).outcome == "miss"
    assert len(caught) == 1


@pytest.mark.slow
def test_server_without_free_connections(postgres: Server, url: str) -> None:
    """A server that has no connection to give is asked again until it has."""
    engine = create_engine(driven(url), poolclass=NullPool)
    held = []
    with suppress(OperationalError):
        while len(held) < 100:
            held.append(engine.connect())
    with pytest.raises(StoreError, match=r"too many clients|remaining connection slots"):
        Store.open(url, patience_s=0.05)

    def work() -> None:
        with Store.open(url) as store:
            store.save(record())

    child, reader = start(lambda _: work())
    time.sleep(0.2)
    for connection in held:
        connection.close()
    assert finish(child, reader) == ""
    with Store.open(url) as store:
        assert store.records() == [record()]


def test_no_connection_is_left_open(url: str, postgres: Server) -> None:
    """Between two calls a store holds no connection: a large job's ranks do not use them up."""
    with Store.open(url) as store:
        store.save(record())
        query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        engine = create_engine(driven(url))
        with engine.connect() as connection:
            for _ in range(100):  # a session ends a moment after its client
                if connection.exec_driver_sql(query).scalar_one() == 1:
                    break
                connection.rollback()
                time.sleep(0.02)
            else:
                pytest.fail("a connection is open")
        engine.dispose()


@pytest.mark.slow
def test_server_dies() -> None:
    """A server that goes away costs one warning; launches go on."""
    server = Server.start()
    try:
        safe = SafeStore(server.new_store(), patience_s=0.2)
        safe.save(record())
        assert safe.lookup(KEY, PROVENANCE).outcome == "hit"
        server.process.send_signal(signal.SIGQUIT)
        server.process.wait()
        with pytest.warns(StoreWarning, match="going on without the store") as caught:
            assert safe.lookup(KEY, PROVENANCE).outcome == "miss"
        with safe.lease(KEY, PROVENANCE) as lease:
            assert lease.mine
        assert len(caught) == 1
    finally:
        server.stop()


def test_database_of_another_program(url: str, postgres: Server) -> None:
    """Tables of the same name that are not the store's are refused in one line."""
    postgres.execute("CREATE TABLE meta (name text, value text)", url)
    with pytest.raises(StoreError, match="name a database of its own for the store") as caught:
        Store.open(url)
    assert "\n" not in str(caught.value)
