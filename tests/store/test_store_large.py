"""Stores of many keys: what is read of them, how much at once, and who waits meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
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
from asmtune.core.records.tuned import TuneRecord
from asmtune.runtime.misses.lookups import distance
from asmtune.store import codec, interchange, neighbours, records, sqlite_file, transactions
from asmtune.store.codec import key_digest
from asmtune.store.database import Store
from asmtune.store.lookup import RecordSummary
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


def test_neighbours_are_found_without_timings(where: str, store: Store) -> None:
    """A new key's neighbours are the nearest of each device, of which no timing is read.

    Keys that are known are not read again, whoever has saved or deleted some.
    """
    sizes = [1 << i for i in range(40)]
    store.save_all(record(m) for m in sizes)
    there = [replace(record(m), key=replace(record(m).key, device="NVIDIA B200")) for m in sizes]
    store.save_all(there)
    with statements(store) as asked:
        near = store.near(KEY, PROVENANCE)
    assert not [text for text in asked if "JOIN" in text]
    assert all(one.measurements == () and one.winner == record().winner for one in near)
    for device in ("NVIDIA H200", "NVIDIA B200"):
        found = sorted(one.key.shape["M"] for one in near if one.key.device == device)
        expected = sorted(sizes, key=lambda m: distance({"M": m}, {"M": 3000}) or 0.0)
        assert found == sorted(expected[: neighbours.NEAREST])

    other = Store.open(where)
    other.save(record(2999))
    with statements(store) as asked:
        found = [one.key.shape["M"] for one in store.near(KEY, PROVENANCE)]
    assert 2999 in found
    assert len([text for text in asked if "shape" in text]) == 2  # the new key, and the nearest
    other.clear(device="NVIDIA H200")
    assert {one.key.device for one in store.near(KEY, PROVENANCE)} == {"NVIDIA B200"}
    with statements(store) as asked:
        store.near(KEY, PROVENANCE)
    assert len([text for text in asked if text.startswith("SELECT")]) == 3


def test_a_fresh_file_has_neighbours_of_its_own(tmp_path: Path) -> None:
    """A file that was deleted and made again, whose rows count from 1 again, is read again."""
    path = tmp_path / "store.sqlite"
    with Store.open(path) as store:
        for m in (1024, 4096):
            store.save_all(record(m + n) for n in range(neighbours.NEAREST + 1))
            found = {one.key.shape["M"] for one in store.near(record(m).key, PROVENANCE)}
            assert found == {m + n for n in range(1, neighbours.NEAREST)} | {m}
            for file in tmp_path.iterdir():
                file.unlink()


def test_neighbours_that_do_not_serve(store: Store) -> None:
    """Another source, Triton, dtype or kernel, and a shape that does not compare, are left out."""
    near = record(2048)
    key = near.key
    store.save_all(
        [
            replace(near, provenance=replace(PROVENANCE, source="0" * 64)),
            record(2049, provenance=replace(PROVENANCE, triton="2.0.0")),
            record(2050, kernel="pkg.other"),
            replace(near, key=replace(key, dtypes={"a": "fp32"})),
            replace(near, key=replace(key, shape={"M": 2048, "causal": False})),
            replace(near, key=replace(key, shape={"M": 2048})),
            replace(near, key=replace(key, shape={"M": -1, "causal": True})),
        ]
    )
    assert store.near(KEY, PROVENANCE) == []
    assert len(store.near(KEY)) == 5


def test_neighbours_with_timings(store: Store) -> None:
    """A search gets the nearest records with their timings, and none of the samples.

    A winner that is another function comes with the times of what can be called in its place.
    """
    other = record().winner.with_alternative("library")
    won = record(2048, winner=other, measurements=(timed(other, 1.0), *record().measurements))
    store.save_all([record(1024), won])
    near = {one.key.shape["M"]: one for one in store.near(KEY)}
    assert near[1024].measurements == tuple(
        replace(timing, samples_us=()) for timing in record().measurements
    )
    assert near[1024].failures == record().failures
    (found,) = [one for one in store.near(KEY, PROVENANCE) if one.winner == other]
    assert found.winner_among(()) == record().winner


def test_a_damaged_neighbour_is_set_aside(tmp_path: Path) -> None:
    """A damaged row among the nearest is deleted with a warning, and the others serve."""
    with Store.open(tmp_path / "store.sqlite", on_corrupt="set_aside") as store:
        store.save_all([record(1024), record(2048)])
        digest = key_digest(record(2048).key)
        damage = f"UPDATE keys SET winner = '{{}}' WHERE digest = '{digest}'"
        store.transact(lambda c: c.exec_driver_sql(damage).close(), writes=True)
        with pytest.warns(UserWarning, match="do not match its seal"):
            assert [one.key.shape["M"] for one in store.near(KEY, PROVENANCE)] == [1024]


shapes = st.dictionaries(
    st.sampled_from("MNK"), st.integers(-1, 1 << 40) | st.booleans() | st.text(max_size=2)
)


@given(known=st.lists(shapes, max_size=30), new=shapes)
def test_the_index_measures_as_a_launch_does(known: list[Any], new: Any) -> None:
    """Whatever shapes are stored, those chosen are as near as the nearest by `distance`."""

    class Row:
        def __init__(self, number: int, shape: Any) -> None:
            self.id, self.shape, self.device = number, json.dumps(shape), "d"
            self.dtypes, self.source, self.triton = '{"a":"fp16"}', PROVENANCE.source, "3.6.0"

    half = len(known) // 2
    rows: list[Any] = [Row(number, shape) for number, shape in enumerate(known)]
    index = neighbours.KeyIndex().having(rows[:half]).having(rows[half:])
    chosen = index.nearest(replace(record().key, shape=new), PROVENANCE)
    away = [distance(shape, new) for shape in known]
    nearest = sorted(one for one in away if one is not None)[: neighbours.NEAREST]
    assert sorted(away[i] or 0.0 for i in chosen) == pytest.approx(nearest)


def held(store: Store) -> tuple[threading.Thread, Callable[[], None]]:
    """Start a thread that reads for as long as it is let; return it, and what ends its read."""
    begun, over = threading.Event(), threading.Event()

    def read(connection: Connection) -> None:
        connection.exec_driver_sql("SELECT count(*) FROM keys").close()
        begun.set()
        over.wait(PATIENCE_S)

    thread = threading.Thread(target=lambda: store.transact(read))
    thread.start()
    assert begun.wait(PATIENCE_S)
    return thread, over.set


def test_a_thread_that_reads_stops_nobody(tmp_path: Path) -> None:
    """Others find and save meanwhile, and the store works on."""
    path = tmp_path / "store.sqlite"
    safe = SafeStore(str(path), patience_s=0.5)
    safe.save(record(1))
    thread, end = held(Store.open(path))
    assert safe.lookup(record(1).key, PROVENANCE).outcome == "hit"
    safe.save(record(2))
    assert safe.lookup(record(2).key, PROVENANCE).outcome == "hit"
    assert safe.working
    end()
    thread.join()


def test_a_thread_that_writes_is_no_fault_of_the_store(tmp_path: Path) -> None:
    """Where another thread writes for too long, one save is not done, with a warning."""
    path = tmp_path / "store.sqlite"
    safe = SafeStore(str(path), patience_s=0.2)
    safe.save(record(1))
    begun, over = threading.Event(), threading.Event()

    def write(_: Connection) -> None:
        begun.set()
        over.wait(PATIENCE_S)

    store = Store.open(path)
    thread = threading.Thread(target=lambda: store.transact(write, writes=True))
    thread.start()
    assert begun.wait(PATIENCE_S)
    assert safe.lookup(record(1).key, PROVENANCE).outcome == "hit"
    with pytest.warns(UserWarning, match="another thread of this process"):
        safe.save(record(2))
    assert safe.working
    over.set()
    thread.join()
    safe.save(record(2))
    assert safe.lookup(record(2).key, PROVENANCE).outcome == "hit"


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
    parse = records.WHOLE.parse

    def noting(row: Any) -> Any:
        users.append(sqlite_file._gate.users)
        return parse(row)

    with Store.open(path) as store:
        store.save_all(record(m) for m in range(8))
        reading = replace(records.WHOLE, parse=noting, most=3)
        monkeypatch.setattr(records, "WHOLE", reading)
        with statements(store) as asked:
            assert len(store.records()) == 8
    assert users == [0] * 8
    assert len([text for text in asked if text == "BEGIN"]) == 4


def test_a_listing_asks_once_a_batch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come by their ids, in the order in which they lie, and equal configs are read once."""
    monkeypatch.setattr(records, "SUMMARIES", replace(records.SUMMARIES, most=5))
    store.save_all(record(m) for m in reversed(range(10)))
    parsed: list[Any] = []
    read = codec.config_from_json
    monkeypatch.setattr(codec, "config_from_json", lambda *a: parsed.append(a) or read(*a))
    records._winner.cache_clear()
    with statements(store) as asked:
        found = list(store.summaries())
    assert [one.shape["M"] for one in found] == [*reversed(range(10))]
    selects = [text for text in asked if text.startswith("SELECT")]
    assert len(selects) == 3
    assert not [text for text in selects if "keys.digest IN" in text]
    assert len(parsed) == 1


def test_a_record_that_is_replaced_while_others_are_read(
    where: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing has each key once, as it is when its batch is read."""
    monkeypatch.setattr(records, "WHOLE", replace(records.WHOLE, most=2))
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
    monkeypatch.setattr(records, "BATCH", 3)
    put, calls = records.put, 0

    def third_fails(*arguments: Any, **options: Any) -> None:
        nonlocal calls
        calls += 1
        put(*arguments, **options)
        if calls == 3:
            raise StoreError("the disk is full")

    monkeypatch.setattr(records, "put", third_fails)
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
    monkeypatch.setattr(records, "BATCH", 4)
    for name in ("WHOLE", "SUMMARIES"):
        monkeypatch.setattr(records, name, replace(getattr(records, name), most=4))
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
    monkeypatch.setattr(records, "RecordSummary", Summary)
    words = command.split()
    target = {"export": [str(tmp_path / "out")], "import": [str(file)]}
    arguments = [words[0], *target.get(words[0], []), *words[1:], "--store", str(path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None
    assert 0 < most <= 10
