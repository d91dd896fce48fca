"""The store on damaged, foreign, newer, full and forbidden files."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from children import memory_folder
from hypothesis import given, settings
from hypothesis import strategies as st
from store_records import DAMAGED, PROVENANCE, execute, record

from asmtune.base.errors import StoreError
from asmtune.core.records.tuned import TuneRecord
from asmtune.store import codec, tables, transactions
from asmtune.store.codec import key_digest
from asmtune.store.database import Store
from asmtune.store.lease import Claim, LeaseIntervals
from asmtune.store.lookup import StoredPrediction, StoreWarning
from asmtune.store.safe_store import SafeStore

Damage = Callable[[bytes, st.DataObject], bytes]

RECORDS = [record(m) for m in range(12)]
GUESS = StoredPrediction(record(50).key, record().winner, 6.25, PROVENANCE)


def fill(path: Path) -> Path:
    """Make a store of twelve records, a prediction and a lease."""
    with Store.open(path) as store:
        store.save_all(RECORDS)
        store.save_prediction(GUESS)
        Claim(GUESS.key, PROVENANCE).take(store)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of twelve records, a prediction and a lease."""
    return fill(tmp_path / "store.sqlite")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of such a store."""
    return fill(tmp_path_factory.mktemp("sound") / "store.sqlite").read_bytes()


def one_line(error: BaseException) -> None:
    """The message is one line."""
    assert "\n" not in str(error)


def use(store: Store) -> None:
    """Every way of using a store, each of which may meet the damage first."""
    store.find(RECORDS[3].key)
    store.lookup(RECORDS[5].key, PROVENANCE)
    store.records()
    store.verify()
    store.find_prediction(GUESS.key, PROVENANCE)
    store.save_prediction(GUESS)
    claim = Claim(GUESS.key, PROVENANCE)
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
@settings(deadline=None, max_examples=40)
@given(data=st.data(), noise=st.binary(max_size=2000))
def test_cut_or_random_bytes(sound: bytes, data: st.DataObject, noise: bytes) -> None:
    """A store cut off anywhere, or nothing but our mark, is set aside; what never was one is left.

    An empty file is taken for a new one.
    """
    assert survives(sound[: data.draw(st.integers(72, len(sound) - 1))]) == [RECORDS[1]]
    assert survives(DAMAGED[:72] + noise) == [RECORDS[1]]
    if noise == b"":
        assert survives(noise) == [RECORDS[1]]
    else:
        with pytest.raises(StoreError, match="not a readable asmtune store"):
            survives(noise)


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
    """Whatever bytes changed, a hit is the record that was saved, or the prediction."""
    with memory_folder() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        path = Path(folder) / "store.sqlite"
        path.write_bytes(damage(sound, data))
        with suppress(StoreError), Store.open(path, on_corrupt="set_aside") as store:
            for saved in RECORDS:
                found = store.lookup(saved.key, PROVENANCE)
                assert found.outcome != "hit" or found.record == saved
            assert store.find_prediction(GUESS.key, PROVENANCE) in (None, GUESS)


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


@pytest.mark.parametrize(
    ("version", "says"),
    [(4, r"newer asmtune \(schema 4, this one knows 3\); upgrade"), (-1, "schema version -1")],
)
def test_other_versions(path: Path, version: int, says: str) -> None:
    """A store of a newer asmtune is refused and keeps every byte; others are damage."""
    execute(path, f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=says):
        Store.open(path)
    if version > 0:
        with pytest.raises(StoreError, match=says):
            Store.open(path, on_corrupt="set_aside")
    assert path.read_bytes() == before
    assert list(path.parent.glob("*corrupt*")) == []


SEAL = "its values do not match its seal"
OUTCOMES = "its outcomes do not match their seal"

DAMAGE = {
    "winner = '{'": SEAL,
    "winner = '[]'": SEAL,
    "winner = replace(winner, '128', '256')": SEAL,
    "shape = x'ff'": SEAL,
    "kernel = CAST(x'ff' AS TEXT)": SEAL,
    "samples = '[[NaN]]'": OUTCOMES,
    "samples = replace(samples, '9.75', '9.76')": OUTCOMES,
    "measurements = CAST(x'ff' AS TEXT)": OUTCOMES,
    "failures = '[]'": OUTCOMES,
    **{f"{name} = {name} || '_'": "seal" for name in codec.HEAD[1:]},
}


def test_damaged_rows(tmp_path: Path) -> None:
    """Every way of reading names a damaged row and keeps it, or deletes it with one warning."""
    path, made = tmp_path / "store.sqlite", [record(m) for m in range(len(DAMAGE))]
    with Store.open(path) as store:
        store.save_all([*made, record(99)])
        for one, change in zip(made, DAMAGE, strict=True):
            execute(path, f"UPDATE keys SET {change} WHERE digest = ?", key_digest(one.key))
        for one, problem in zip(made, DAMAGE.values(), strict=True):
            with pytest.raises(StoreError, match=rf"{problem}.*`asmtune cache verify`") as caught:
                store.find(one.key)
            one_line(caught.value)
            assert store.lookup(one.key, PROVENANCE).outcome == "corrupt"
        for read in (store.records, lambda: list(store.summaries())):
            with pytest.raises(StoreError, match="`asmtune cache verify`"):
                read()
        assert {one.place[:12] for one in store.verify()} == {key_digest(r.key)[:12] for r in made}
        assert store.find(record(99).key) == record(99)
    with Store.open(path, on_corrupt="set_aside") as store:
        with pytest.warns(StoreWarning, match=SEAL) as told:
            found = store.lookup(made[0].key, PROVENANCE)
        assert (found.outcome, found.record, len(told)) == ("corrupt", None, 1)
        assert store.lookup(made[0].key, PROVENANCE).outcome == "miss"
        with pytest.warns(StoreWarning, match="have been deleted"):
            assert store.records() == [record(99)]
        assert store.verify() == []
        store.save(made[0])
        assert store.find(made[0].key) == made[0]
    assert list(path.parent.glob("*corrupt*")) == []


def test_damage_of_what_is_no_record(path: Path) -> None:
    """A damaged prediction is found by verify, left out and deleted."""
    execute(path, "UPDATE predictions SET winner = replace(winner, '1', '2')")
    with Store.open(path) as store:
        assert [finding.problem for finding in store.verify()] == [SEAL]
    with Store.open(path, on_corrupt="set_aside") as store:
        with pytest.warns(StoreWarning, match="1 damaged rows of predictions.*deleted"):
            assert store.find_prediction(GUESS.key, PROVENANCE) is None
        assert store.verify() == []
        store.save(record(99, measurements=()))
        (finding,) = store.verify()
    assert finding.place == f"{key_digest(record(99).key)[:12]} pkg.matmul"
    assert finding.problem == "its winner is not among its measurements"


@pytest.mark.parametrize("change", ["owner = x'ff'", "owner = CAST(x'ff' AS TEXT)", "beats = 'x'"])
def test_damaged_lease(path: Path, change: str) -> None:
    """A lease whose row is damaged is taken, and holds nobody up."""
    execute(path, f"UPDATE leases SET {change}")
    safe = SafeStore(str(path), wait_s=20, pace=LeaseIntervals(stale_s=0.1))
    with safe.lease(GUESS.key, PROVENANCE) as lease:
        assert lease.mine


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
