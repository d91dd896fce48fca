"""The store between processes and threads: all writers land, and a kill loses nothing committed."""

from __future__ import annotations

import sqlite3
import warnings
from contextlib import closing
from pathlib import Path

import pytest
from children import finish, start
from store_records import DAMAGED, record

from asmtune.store import transactions
from asmtune.store.database import Store
from asmtune.store.lookup import StoreWarning

WRITERS = 8
EACH = 5


@pytest.mark.slow
@pytest.mark.parametrize("existing", [True, False])
def test_eight_processes_write_at_once(where: str, existing: bool) -> None:
    """Eight processes that write different keys all land, also where all make the store at once."""
    if existing:
        Store.open(where).close()

    def write(first: int) -> None:
        with Store.open(where) as store:
            for m in range(first, first + EACH):
                store.save(record(m))

    children = [start(lambda _, first=n * EACH: write(first)) for n in range(WRITERS)]
    assert [finish(*child) for child in children] == [""] * WRITERS
    with Store.open(where) as store:
        assert {r.key.shape["M"] for r in store.records()} == set(range(WRITERS * EACH))
        assert store.verify() == []
    assert list(Path(where).parent.glob("*.new*")) == []


def test_damaged_file_met_by_several_processes(tmp_path: Path) -> None:
    """Processes that meet a damaged file together set it aside once and lose no save."""
    path = tmp_path / "store.sqlite"
    path.write_bytes(DAMAGED)

    def write(n: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StoreWarning)
            with Store.open(path, on_corrupt="set_aside") as store:
                store.save(record(n))

    children = [start(lambda _, n=n: write(n)) for n in range(6)]
    assert [finish(*child) for child in children] == [""] * 6
    assert len(list(tmp_path.glob("*.corrupt-*"))) == 1
    with Store.open(path) as store:
        assert {r.key.shape["M"] for r in store.records()} == set(range(6))


@pytest.mark.parametrize("late", [True, False])
def test_file_that_is_replaced_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """A call that finds its file gone, because another process sets it aside, uses the new one."""
    path = tmp_path / "store.sqlite"
    store = Store.open(path, on_corrupt="set_aside")
    ensure = transactions.ensure

    def just_before(where: Path, patience_s: float) -> tuple[int, int] | None:
        seen = ensure(where, patience_s)
        monkeypatch.setattr(transactions, "ensure", ensure)
        path.rename(tmp_path / "away")
        return seen if late else None

    monkeypatch.setattr(transactions, "ensure", just_before)
    store.save(record())
    assert store.records() == [record()]


def test_writers_take_the_lock_before_they_read(tmp_path: Path) -> None:
    """A transaction that may write keeps others from writing between its first read and its write.

    Otherwise SQLite would fail it at once, whatever the busy timeout.
    """
    path = tmp_path / "store.sqlite"
    Store.open(path).close()
    with transactions.begun(transactions.engine_of(path), writes=True) as writer:
        writer.exec_driver_sql("SELECT * FROM meta").all()
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            assert other.execute("SELECT count(*) FROM keys").fetchone() == (0,)
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("DELETE FROM meta")
