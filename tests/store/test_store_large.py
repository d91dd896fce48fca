"""Stores of many keys: what is read of them, how much at once, and who waits meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from children import in_child
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, event
from store_records import PROVENANCE, record, timed
from typer.testing import CliRunner

from asmtune.base.errors import StoreError
from asmtune.cli import cache
from asmtune.cli.app import app
from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneRecord
from asmtune.store import interchange, neighbours, sqlite_file, tables, transactions
from asmtune.store.database import Store
from asmtune.store.lookup import RecordSummary
from asmtune.store.neighbours import distance
from asmtune.store.safe_store import SafeStore

PATIENCE_S = 60
KEY = record(3000).key


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """List what a store asks its database, but for the pragmas of a connection."""
    asked: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        asked.append(" ".join(statement.split()))

    engine = store.engine
    event.listen(engine, "before_cursor_execute", note)
    yield asked
    event.remove(engine, "before_cursor_execute", note)


def test_neighbours_are_the_nearest_of_each_device(where: str, store: Store) -> None:
    """A new key's neighbours are the nearest of each device.

    Keys that are known are not read again, whoever has saved or deleted some.
    """
    sizes = [1 << i for i in range(40)]
    store.save_all(record(m) for m in sizes)
    there = [replace(record(m), key=replace(record(m).key, device="NVIDIA B200")) for m in sizes]
    store.save_all(there)
    near = store.near(KEY)
    assert all(one.winner == record().winner for one in near)
    for device in ("NVIDIA H200", "NVIDIA B200"):
        found = sorted(one.key.shape["M"] for one in near if one.key.device == device)
        expected = sorted(sizes, key=lambda m: distance({"M": m}, {"M": 3000}))
        assert found == sorted(expected[: neighbours.NEAREST])

    other = Store.open(where)
    other.save(record(2999))
    with statements(store) as asked:
        found = [one.key.shape["M"] for one in store.near(KEY)]
    assert 2999 in found
    assert len([text for text in asked if "shape" in text]) == 2  # the new key, and the nearest
    other.clear(device="NVIDIA H200")
    assert {one.key.device for one in store.near(KEY)} == {"NVIDIA B200"}
    with statements(store) as asked:
        store.near(KEY)
    assert len([text for text in asked if text.startswith("SELECT")]) == 2


def test_neighbours_have_their_fastest_timings(store: Store) -> None:
    """A search gets the nearest records with their fastest timings, without samples."""
    configs = [Config({"BLOCK": size}) for size in range(1, 2 + 2 * neighbours.NEAREST)]
    slow_first = tuple(timed(config, 40.0 - config.kwargs["BLOCK"]) for config in configs)
    other = replace(record().key, dtypes={"a": "fp32"})
    store.save_all(
        [
            record(1024, winner=configs[-1], measurements=slow_first),
            replace(record(2048), key=other),
            record(9, kernel="pkg.other"),
        ]
    )
    (near,) = store.near(KEY)
    fastest = slow_first[: -neighbours.NEAREST - 1 : -1]
    assert near.measurements == tuple(replace(timing, samples_us=()) for timing in fastest)
    assert near.failures == ()


shapes = st.dictionaries(
    st.sampled_from("MNK"), st.integers(-1, 1 << 40) | st.booleans() | st.text(max_size=2)
)


@given(known=st.lists(shapes, max_size=30), new=shapes)
def test_the_index_measures_as_a_search_does(known: list[Any], new: Any) -> None:
    """Whatever shapes are stored, those chosen are as near as the nearest by `distance`."""

    class Row:
        def __init__(self, number: int, shape: Any) -> None:
            self.id, self.shape, self.device = number, json.dumps(shape), "d"
            self.dtypes = '{"a":"fp16"}'

    half = len(known) // 2
    rows: list[Any] = [Row(number, shape) for number, shape in enumerate(known)]
    index = neighbours.KeyIndex().having(rows[:half]).having(rows[half:])
    chosen = index.nearest(replace(record().key, shape=new))
    away = [distance(shape, new) for shape in known]
    nearest = sorted(away)[: neighbours.NEAREST]
    assert sorted(away[i] for i in chosen) == pytest.approx(nearest)


@pytest.mark.parametrize("writes", [False, True])
def test_a_thread_in_a_transaction(tmp_path: Path, writes: bool) -> None:
    """Others read on, and save beside a reader; one that writes too long costs one save alone."""
    path = tmp_path / "store.sqlite"
    safe = SafeStore(str(path), patience_s=0.3)
    safe.save(record(1))
    begun, over = threading.Event(), threading.Event()

    def work(connection: Connection) -> None:
        connection.exec_driver_sql("SELECT count(*) FROM keys").close()
        begun.set()
        over.wait(PATIENCE_S)

    store = Store.open(path)
    thread = threading.Thread(target=lambda: store.transact(work, writes=writes))
    thread.start()
    assert begun.wait(PATIENCE_S)
    assert safe.lookup(record(1).key, PROVENANCE).outcome == "hit"
    if writes:
        with pytest.warns(UserWarning, match="another thread of this process"):
            safe.save(record(2))
        over.set()
        thread.join()
    assert safe.working
    safe.save(record(2))
    assert safe.lookup(record(2).key, PROVENANCE).outcome == "hit"
    over.set()
    thread.join()


def test_nobody_waits_for_another_process_in_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork passes while a thread waits for a file that another process has locked."""
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    store.save(record(1))
    locker = sqlite_file.connect(path, PATIENCE_S)
    locker.execute("BEGIN IMMEDIATE")
    waiting, connect = threading.Event(), transactions.connect

    def noted(*arguments: Any) -> Any:
        connection = connect(*arguments)
        if threading.current_thread() is thread:
            waiting.set()
        return connection

    monkeypatch.setattr(transactions, "connect", noted)
    thread = threading.Thread(target=lambda: store.save(record(2)))
    thread.start()
    assert waiting.wait(PATIENCE_S)
    found = in_child(lambda: None if Store.open(path).find(record(1).key) else 1 / 0)
    assert found == ""
    locker.execute("COMMIT")
    locker.close()
    thread.join()
    assert store.find(record(2).key) == record(2)


def test_records_are_parsed_between_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel's records are read in batches, and no connection is open while one is parsed."""
    path = tmp_path / "store.sqlite"
    users: list[int] = []
    parse = tables.WHOLE.read

    def noting(row: Any) -> Any:
        users.append(sqlite_file._gate.users)
        return parse(row)

    with Store.open(path) as store:
        store.save_all(record(m) for m in range(8))
        reading = tables.WHOLE._replace(read=noting, most=3)
        monkeypatch.setattr(tables, "WHOLE", reading)
        with statements(store) as asked:
            assert len(store.records()) == 8
    assert users == [0] * 8
    assert len([text for text in asked if text == "BEGIN"]) == 4


def test_a_record_that_is_replaced_while_others_are_read(
    where: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing has each key once, as it is when its batch is read."""
    monkeypatch.setattr(tables, "WHOLE", tables.WHOLE._replace(most=2))
    store.save_all(record(m) for m in range(6))
    found: list[TuneRecord] = []
    for one in store.stream():
        if not found:
            other = Store.open(where)
            other.save_all(record(m, failures=()) for m in range(6))
        found.append(one)
    assert sorted(one.key.shape["M"] for one in found) == list(range(6))
    assert [one.failures == () for one in found] == [False] * 2 + [True] * 4


def test_an_interrupted_import_keeps_whole_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how many records are in, each whole, and importing again adds the rest."""
    file, path = tmp_path / "f.json", tmp_path / "store.sqlite"
    interchange.write(file, [record(m) for m in range(8)], samples=True)
    monkeypatch.setattr(tables, "BATCH", 3)
    put, calls = tables.put, 0

    def third_fails(*arguments: Any, **options: Any) -> None:
        nonlocal calls
        calls += 1
        put(*arguments, **options)
        if calls == 3:
            raise StoreError("the disk is full")

    monkeypatch.setattr(tables, "put", third_fails)
    arguments = ["import", str(file), "--store", str(path)]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, StoreError)
    assert result.stderr.startswith(f"6 records of {file} are in {path}")
    with Store.open(path) as store:
        assert len(store.records()) == 6
        assert store.verify() == []
        assert CliRunner().invoke(app, arguments).exit_code == 0
        assert len(store.records()) == 8
        assert store.verify() == []


def test_writing_has_no_limit_of_time(tmp_path: Path) -> None:
    """What a user asks for may take longer than a launch may wait; a read of a launch may not."""
    with Store.open(tmp_path / "store.sqlite", patience_s=0.05) as store:
        store.save(record(1))
        endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT {}) "
        count = endless.format(3_000_000) + "SELECT count(*) FROM n"
        store.transact(lambda c: c.exec_driver_sql(count).scalar_one(), writes=True)
        with pytest.raises(StoreError, match="took too long"):
            store.transact(lambda c: c.exec_driver_sql(count).scalar_one())


@pytest.mark.parametrize("command", ["cache ls", "cache ls --format json", "export", "import"])
def test_a_batch_at_most_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """However many records there are, no command that lists or copies them holds more."""
    monkeypatch.setattr(cache, "shipped_records", lambda: ())
    monkeypatch.setattr(tables, "BATCH", 4)
    for name in ("WHOLE", "SUMMARIES"):
        monkeypatch.setattr(tables, name, getattr(tables, name)._replace(most=4))
    alive: set[int] = set()
    most = 0

    class Counted:
        def __init__(self) -> None:
            nonlocal most
            alive.add(id(self))
            most = max(most, len(alive))

        def __del__(self) -> None:
            alive.discard(id(self))

    path, file = tmp_path / "store.sqlite", tmp_path / "f.json"
    with Store.open(path) as store:
        store.save_all(record(m) for m in range(40))
    interchange.write(file, [record(m) for m in range(40)])
    made = TuneRecord.__init__

    def init(self: Any, *arguments: Any, **values: Any) -> None:
        made(self, *arguments, **values)
        object.__setattr__(self, "_counted", Counted())

    class Summary(RecordSummary):
        def __init__(self, *_: Any) -> None:
            self._counted = Counted()

    monkeypatch.setattr(TuneRecord, "__init__", init)
    monkeypatch.setattr(tables, "SUMMARIES", tables.SUMMARIES._replace(read=Summary.of_head))
    words = command.split()
    target = {"export": [str(tmp_path / "out")], "import": [str(file)]}
    arguments = [words[0], *target.get(words[0], []), *words[1:], "--store", str(path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None
    assert 0 < most <= 10
