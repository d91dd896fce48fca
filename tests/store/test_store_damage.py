"""The store on damaged, foreign, newer, full and forbidden files."""

from __future__ import annotations

import resource
import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from children import in_child, memory_folder
from hypothesis import given, settings
from hypothesis import strategies as st
from store_records import DAMAGED, PROVENANCE, execute, record

from asmtune.base.errors import StoreError
from asmtune.core.records.tuned import TuneRecord
from asmtune.store import codec, interchange, tables, transactions
from asmtune.store.codec import key_digest
from asmtune.store.database import Store
from asmtune.store.fast_lookup import fast_lookup
from asmtune.store.lease import Claim, LeaseIntervals
from asmtune.store.lookup import StoreWarning
from asmtune.store.safe_store import SafeStore

Damage = Callable[[bytes, st.DataObject], bytes]

RECORDS = [record(m) for m in range(12)]
UNFINISHED = record(50)


def fill(path: Path) -> Path:
    """Make a store of twelve records, an unfinished run and a lease."""
    with Store.open(path) as store:
        store.save_all(RECORDS)
        store.save_outcomes(
            UNFINISHED.key, PROVENANCE, UNFINISHED.measurements, UNFINISHED.failures
        )
        Claim(UNFINISHED.key, PROVENANCE).take(store)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of twelve records, an unfinished run and a lease."""
    return fill(tmp_path / "store.sqlite")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of such a store."""
    return fill(tmp_path_factory.mktemp("sound") / "store.sqlite").read_bytes()


def one_line(error: BaseException) -> str:
    """The message, shown to be one line."""
    assert "\n" not in str(error)
    return str(error)


def use(store: Store) -> None:
    """Every way of using a store, each of which may meet the damage first."""
    store.find(RECORDS[3].key)
    store.lookup(RECORDS[5].key, PROVENANCE)
    store.records()
    store.verify()
    store.unfinished()
    for key in (RECORDS[6].key, UNFINISHED.key):
        store.earlier_outcomes(key, PROVENANCE)
        store.save_outcomes(key, PROVENANCE, UNFINISHED.measurements)
    claim = Claim(UNFINISHED.key, PROVENANCE)
    claim.read(store)
    claim.take(store)
    claim.beat(store)
    claim.release(store)
    store.save_first(RECORDS[5])
    store.save(RECORDS[7])
    store.clear("pkg.matmul")


def survives(content: bytes) -> list[TuneRecord]:
    """Set-aside mode works through any content; error mode raises nothing but StoreError.

    Returns:
        What the store holds in the end, after it was cleared and saved to.
    """
    with memory_folder() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        path = Path(folder) / "store.sqlite"
        path.write_bytes(content)
        try:
            use(Store.open(path))
        except StoreError as error:
            one_line(error)
        path.write_bytes(content)
        with Store.open(path, on_corrupt="set_aside") as store:
            use(store)
            store.save(RECORDS[1])
            return store.records()


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(content=st.binary(max_size=2000))
def test_random_bytes(content: bytes) -> None:
    """Bytes that were never a store are reported in one line and left; behind our mark, set aside.

    An empty file is taken for a new one.
    """
    assert survives(DAMAGED[:72] + content) == [RECORDS[1]]
    if content == b"":
        assert survives(content) == [RECORDS[1]]
    else:
        with pytest.raises(StoreError, match="not a readable asmtune store"):
            survives(content)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_truncated(sound: bytes, data: st.DataObject) -> None:
    """A store cut off anywhere is set aside, or reported in one line, whatever is asked first."""
    assert survives(sound[: data.draw(st.integers(72, len(sound) - 1))]) == [RECORDS[1]]


def overwritten(sound: bytes, data: st.DataObject) -> bytes:
    """The store with some bytes changed, in its head or anywhere."""
    content = bytearray(sound)
    where = st.one_of(st.integers(0, 300), st.integers(0, len(sound) - 1))
    for at, byte in data.draw(st.lists(st.tuples(where, st.integers(0, 255)), max_size=30)):
        content[at] = byte
    return bytes(content)


# What a changed byte leaves readable is kept, so that only the errors are bounded;
# there is even a byte that makes SQLite take the file for read-only.
@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_overwritten(sound: bytes, data: st.DataObject) -> None:
    """A store with any bytes changed never raises anything but StoreError."""
    with suppress(StoreError):
        survives(overwritten(sound, data))


def changed_digits(sound: bytes, data: st.DataObject) -> bytes:
    """The store with some digits changed to others, which leaves JSON and numbers well-formed."""
    places = [at for at, byte in enumerate(sound) if chr(byte).isdigit()]
    content = bytearray(sound)
    for at in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=200)):
        content[at] = data.draw(st.sampled_from(b"0123456789"))
    return bytes(content)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(data=st.data(), damage=st.sampled_from([overwritten, changed_digits]))
def test_never_a_wrong_config(sound: bytes, data: st.DataObject, damage: Damage) -> None:
    """Whatever bytes changed, a hit is the record that was saved, and a timing the one taken."""
    with memory_folder() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        path = Path(folder) / "store.sqlite"
        path.write_bytes(damage(sound, data))
        with suppress(StoreError), Store.open(path, on_corrupt="set_aside") as store:
            for saved in RECORDS:
                found = store.lookup(saved.key, PROVENANCE)
                assert found.outcome != "hit" or found.record == saved
            known = store.earlier_outcomes(UNFINISHED.key, PROVENANCE)
            assert set(known.measurements) <= set(UNFINISHED.measurements)
            assert set(known.failures) <= set(UNFINISHED.failures)


@pytest.mark.parametrize("when", ["before", "after"])
def test_set_aside_keeps_the_damaged_file(path: Path, when: str) -> None:
    """A file that is damaged before it is opened, or after, keeps its bytes under another name.

    One warning names it, and the call that met it succeeds.
    """
    if when == "before":
        path.write_bytes(DAMAGED)

    def saved() -> list[TuneRecord]:
        store = Store.open(path, on_corrupt="set_aside")
        if when == "after":
            path.write_bytes(DAMAGED)
        store.save(record())
        return store.records()

    with pytest.warns(StoreWarning) as caught:
        assert saved() == [record()]
    (away,) = path.parent.glob("store.sqlite.corrupt-*")
    assert away.read_bytes() == DAMAGED
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(caught) == 1
    assert away.name in str(caught[0].message)


def test_log_of_a_damaged_file_goes_with_it(path: Path) -> None:
    """What SQLite keeps beside a damaged file is not replayed into the fresh one."""
    with closing(sqlite3.connect(path, isolation_level=None)) as held:
        held.execute("UPDATE keys SET winner = '{'")
        log = path.with_name("store.sqlite-wal").read_bytes()
        assert log
        with pytest.warns(StoreWarning, match="by hand"):
            transactions.set_aside(path, transactions.identity(path), "by hand")
        (away,) = path.parent.glob("store.sqlite.corrupt-*-wal")
        assert away.read_bytes() == log
        with Store.open(path) as store:
            assert store.records() == []
            assert store.verify() == []


def test_a_fresh_file_of_another_process_is_not_set_aside(path: Path) -> None:
    """Of two processes that met the same damaged file, the second leaves the first's new one."""
    other = path.with_name("other")
    other.write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        transactions.set_aside(path, transactions.identity(other), "seen before it was replaced")
    with Store.open(path) as store:
        assert len(store.records()) == len(RECORDS)


@pytest.mark.parametrize("found", [0, -1])
def test_no_version(path: Path, found: int) -> None:
    """A version that never was is damage."""
    execute(path, f"PRAGMA user_version = {found}")
    with pytest.raises(StoreError, match=f"schema version {found}"):
        Store.open(path)


def test_a_table_is_missing(path: Path) -> None:
    """A file without all tables of its schema is damage: refused, or set aside and made again."""
    execute(path, "DROP TABLE trials")
    assert not fast_lookup(str(path), RECORDS[0].key, PROVENANCE).sure
    with pytest.raises(StoreError, match="its tables are not those of a store"):
        Store.open(path)
    with pytest.warns(StoreWarning, match="set aside as"):
        Store.open(path, on_corrupt="set_aside").save(record())
    with Store.open(path) as store:
        assert store.records() == [record()]


@pytest.mark.parametrize("on_corrupt", ["error", "set_aside"])
def test_newer_schema_is_never_touched(path: Path, on_corrupt: str) -> None:
    """A store of a newer asmtune is refused in both modes and keeps every byte."""
    execute(path, "PRAGMA user_version = 4")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"newer asmtune \(schema 4, this one knows 1\); upgrade"):
        Store.open(path, on_corrupt=on_corrupt)  # type: ignore[arg-type]
    assert path.read_bytes() == before
    assert list(path.parent.glob("*corrupt*")) == []


SEAL = "its values do not match its seal"
OUTCOMES = "its outcomes do not match their seal"

DAMAGED_ROWS = [
    ("UPDATE keys SET winner = '{' WHERE digest = ?", SEAL),
    ("UPDATE keys SET winner = '[]' WHERE digest = ?", SEAL),
    ("UPDATE keys SET shape = x'ff' WHERE digest = ?", SEAL),
    ("UPDATE keys SET shape = '{\"M\": 1}' WHERE digest = ?", SEAL),
    ("UPDATE keys SET winner = replace(winner, '128', '256') WHERE digest = ?", SEAL),
    ("UPDATE keys SET kernel = CAST(x'ff' AS TEXT) WHERE digest = ?", SEAL),
    ("UPDATE keys SET kernel = x'ff' WHERE digest = ?", SEAL),
    ("UPDATE keys SET timed = 3 WHERE digest = ?", SEAL),
    ("UPDATE keys SET tried = '[\"other\"]' WHERE digest = ?", SEAL),
    ("UPDATE keys SET samples = '[[NaN]]' WHERE digest = ?", OUTCOMES),
    ("UPDATE keys SET samples = replace(samples, '9.75', '9.76') WHERE digest = ?", OUTCOMES),
    ("UPDATE keys SET measurements = CAST(x'ff' AS TEXT) WHERE digest = ?", OUTCOMES),
    ("UPDATE keys SET failures = '[]' WHERE digest = ?", OUTCOMES),
]


DAMAGED_TRIALS = [
    ("winner = '{'", SEAL),
    ("measurements = '[]'", OUTCOMES),
    ("measurements = replace(measurements, '11.75', '11.76')", OUTCOMES),
    ("samples = CAST(x'ff' AS TEXT)", OUTCOMES),
    ("triton = '3.6.1'", SEAL),
    ("seal = x'00'", SEAL),
    ("kernel = CAST(x'ff' AS TEXT)", SEAL),
]


@pytest.mark.parametrize(("change", "problem"), DAMAGED_TRIALS)
def test_damaged_trial(path: Path, change: str, problem: str) -> None:
    """A damaged batch is found by verify, left out and deleted with one warning; others stay."""
    with Store.open(path) as store:
        store.save_outcomes(UNFINISHED.key, PROVENANCE, RECORDS[0].measurements[:1])
    execute(path, f"UPDATE trials SET {change} WHERE id = 1")
    with Store.open(path) as store:
        (finding,) = store.verify()
        assert problem in finding.problem
        assert finding.place.startswith(key_digest(UNFINISHED.key)[:12])
    with Store.open(path, on_corrupt="set_aside") as store:
        with pytest.warns(StoreWarning, match=f"1 damaged rows .*{problem}.*deleted") as caught:
            known = store.earlier_outcomes(UNFINISHED.key, PROVENANCE)
        assert known.measurements == RECORDS[0].measurements[:1]
        assert known.failures == ()
        assert len(caught) == 1
        assert store.verify() == []


@pytest.mark.parametrize("change", ["owner = x'ff'", "owner = CAST(x'ff' AS TEXT)", "beats = 'x'"])
def test_damaged_lease(path: Path, change: str) -> None:
    """A lease whose row is damaged is taken, and holds nobody up."""
    execute(path, f"UPDATE leases SET {change}")
    safe = SafeStore(str(path), wait_s=20, pace=LeaseIntervals(stale_s=0.1))
    with safe.lease(UNFINISHED.key, PROVENANCE) as lease:
        assert lease.mine


@pytest.mark.parametrize("column", codec.HEAD)
def test_a_listing_has_no_damaged_head(path: Path, column: str) -> None:
    """Whatever column of a key's row has changed, a listing ends before it, and names it."""
    change = f"UPDATE keys SET {column} = {column} || '_' WHERE digest = ?"
    digest = key_digest(RECORDS[4].key)
    execute(path, change, digest)
    with Store.open(path) as store:
        with pytest.raises(StoreError, match="`asmtune cache verify`"):
            list(store.summaries())
        assert len(store.verify()) == 1


@pytest.mark.parametrize(("statement", "problem"), DAMAGED_ROWS)
def test_damaged_row(path: Path, statement: str, problem: str) -> None:
    """Every way of reading names a damaged row and keeps it, or deletes it with one warning."""
    key = RECORDS[4].key
    execute(path, statement, key_digest(key))
    with Store.open(path) as store:
        for read in (lambda: store.find(key), store.records):
            with pytest.raises(StoreError, match=rf"{problem}.*`asmtune cache verify`") as caught:
                read()
            one_line(caught.value)
        assert store.lookup(key, PROVENANCE).outcome == "corrupt"
        (finding,) = store.verify()
        assert key_digest(key)[:12] in finding.place
        assert store.find(RECORDS[5].key) == RECORDS[5]
    with Store.open(path, on_corrupt="set_aside") as store:
        with pytest.warns(StoreWarning, match=problem) as told:
            found = store.lookup(key, PROVENANCE)
        assert (found.outcome, found.record, len(told)) == ("corrupt", None, 1)
        assert store.lookup(key, PROVENANCE).outcome == "miss"
        assert len(store.records()) == len(RECORDS) - 1
        assert store.verify() == []
        store.save(RECORDS[4])
        assert store.find(key) == RECORDS[4]
    assert list(path.parent.glob("*corrupt*")) == []


def test_a_fresh_row_of_another_process_is_not_set_aside(path: Path) -> None:
    """A record saved over a damaged row before that is deleted stays."""
    digest = key_digest(RECORDS[-1].key)
    execute(path, "UPDATE keys SET winner = 'x' WHERE digest = ?", digest)
    with Store.open(path, on_corrupt="set_aside") as store:
        (damaged,) = store._load(RECORDS[-1].key)
        Store.open(path).save(RECORDS[-1])
        with pytest.warns(StoreWarning):
            store._set_aside(tables.keys, [damaged])
        assert store.find(RECORDS[-1].key) == RECORDS[-1]


def test_verify_sees_what_lookups_do_not(path: Path) -> None:
    """Verify finds a winner that was not timed."""
    with Store.open(path) as store:
        store.save(record(99, measurements=()))
        (finding,) = store.verify()
    assert finding.place == f"{key_digest(record(99).key)[:12]} pkg.matmul"
    assert finding.problem == "its winner is not among its measurements"


def test_verify_reports_a_damaged_page(path: Path) -> None:
    """Verify turns damage that SQLite meets into a finding and sets nothing aside."""
    store = Store.open(path)
    content = bytearray(path.read_bytes())
    for page in range(1, len(content) // 4096):
        content[page * 4096 + 8 : page * 4096 + 40] = b"\xff" * 32
    path.write_bytes(bytes(content))
    findings = store.verify()
    assert findings
    assert all(finding.place == "file" for finding in findings)
    assert path.read_bytes() == bytes(content)


def big(m: int) -> TuneRecord:
    """A record of about 400 kB."""
    many = replace(record().measurements[0], samples_us=(0.1234567890123,) * 25_000)
    return record(m, measurements=(many,))


def test_disk_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is one line with advice; nothing of the record is kept and nothing else lost."""
    connect = transactions.connect

    def nearly_full(where: Path, patience_s: float) -> sqlite3.Connection:
        connection = connect(where, patience_s)
        connection.execute("PRAGMA max_page_count = 40")
        return connection

    monkeypatch.setattr(transactions, "connect", nearly_full)
    with Store.open(path, on_corrupt="set_aside") as store:
        with pytest.raises(StoreError, match=r"disk is full; free some space, or set ASMTUNE"):
            store.save(big(100))
        assert len(store.records()) == 12


def test_export_to_a_full_disk(tmp_path: Path) -> None:
    """An export that cannot be written leaves the old file and nothing beside it."""
    file = tmp_path / "tuned.json"
    interchange.write(file, [record()])
    before = file.read_bytes()

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        interchange.write(file, [big(1)], samples=True)

    answer = in_child(limited)
    assert answer.startswith(f"StoreError: {file}: cannot be written (File too large); check")
    assert file.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["tuned.json"]
