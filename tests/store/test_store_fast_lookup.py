"""The lookup without SQLAlchemy: its answers, and the cases that it leaves to `Store`."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_records import PROVENANCE, execute, record, records

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.store import tables
from asmtune.store.codec import row_of
from asmtune.store.database import Store
from asmtune.store.lookup import FastAnswer, StoredConfig, StoredPrediction, fast_lookup
from asmtune.store.sqlite_file import SCHEMA_VERSION

KEY = record().key
GUESS = StoredPrediction(KEY, Config({"BLOCK_M": 32}, num_warps=2), 6.25, PROVENANCE)

NOTHING = FastAnswer(True)
STALE = FastAnswer(True, has_record=True)
ASK = FastAnswer(False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with one record."""
    made = tmp_path / "store.sqlite"
    with Store.open(made) as store:
        store.save(record())
    return made


@pytest.mark.slow
@given(kept=records())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sees_any_record(tmp_path: Path, kept: TuneRecord) -> None:
    """Whatever can be kept is seen as the store proper finds it."""
    path = tmp_path / "store.sqlite"
    with Store.open(path) as store:
        store.save(kept)
        found = store.lookup(kept.key, kept.provenance).record
    assert found is not None
    seen = fast_lookup(str(path), kept.key, kept.provenance)
    held = StoredConfig(found.winner, "tuned", tried=found.tried)
    assert seen == FastAnswer(True, held, has_record=True)


def test_sees_which_alternatives_were_tried(path: Path) -> None:
    """Those that were timed and those that failed, as the store proper has them."""
    won = record().winner
    timed = Measurement(won.with_alternative("timed"), 1.0, 1.0, 1.0, (1.0,))
    failed = (won.with_alternative("failed"), Failure("check", "wrong_output", "it differs"))
    text = Config({"BLOCK_M": "@alternative"}), Failure("launch", "timeout", "")
    kept = replace(record(), failures=(failed, text))
    kept = replace(kept, measurements=(*kept.measurements, timed))
    with Store.open(path) as store:
        store.save(kept)
    seen = fast_lookup(str(path), KEY, PROVENANCE).seen
    assert seen == StoredConfig(won, "tuned", tried=kept.tried)
    assert kept.tried == {"timed", "failed"}


def test_tuned_goes_before_predicted(path: Path) -> None:
    """A prediction is seen where nothing tuned holds, with its time."""
    now = replace(PROVENANCE, source="0" * 64)
    with Store.open(path) as store:
        store.save_prediction(replace(GUESS, provenance=now))
    assert fast_lookup(str(path), KEY, now) == FastAnswer(
        True, StoredConfig(GUESS.config, "predicted", 6.25), has_record=True
    )
    with Store.open(path) as store:  # as an asmtune that knows of no predictions leaves it
        change = tables.predictions.update().values(row_of(GUESS.as_record))
        store.transact(lambda connection: connection.execute(change).close(), writes=True)
    assert fast_lookup(str(path), KEY, PROVENANCE).seen == StoredConfig(record().winner, "tuned")


def test_what_is_not_as_it_should_be(tmp_path: Path, path: Path) -> None:
    """No file, no key and what no longer holds are nothing; damage is left to the store proper."""
    assert fast_lookup(str(tmp_path / "none.sqlite"), KEY, PROVENANCE) == NOTHING
    assert not (tmp_path / "none.sqlite").exists()
    assert fast_lookup("postgresql://user@host/name", KEY, PROVENANCE) == ASK
    assert fast_lookup(str(path), record(1).key, PROVENANCE) == NOTHING
    for name in ("source", "space", "triton"):
        assert fast_lookup(str(path), KEY, replace(PROVENANCE, **{name: "9.9.9"})) == STALE
    sound = path.read_bytes()
    for statement in (
        "UPDATE keys SET winner = replace(winner, '128', '256')",
        "UPDATE keys SET shape = '{\"M\": 1}'",
        "UPDATE keys SET triton = x'ff'",
        "UPDATE keys SET seal = ''",
        f"PRAGMA user_version = {SCHEMA_VERSION + 1}",
        "DROP TABLE predictions",
    ):
        path.write_bytes(sound)
        execute(path, statement)
        assert fast_lookup(str(path), KEY, PROVENANCE) == ASK, statement


@given(place=st.integers(0, 30000), bit=st.integers(0, 7))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_bit_is_never_another_config(path: Path, place: int, bit: int) -> None:
    """Whatever bit of the file flips, the lookup sees the config that was saved, or is not sure."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    damaged = path.with_name("damaged.sqlite")
    damaged.write_bytes(content)
    found = fast_lookup(str(damaged), KEY, PROVENANCE)
    assert found.seen in (None, StoredConfig(record().winner, "tuned"))


def test_loads_no_database_code(path: Path) -> None:
    """A fast lookup needs SQLite alone, and one of what is shipped not even that."""
    code = (
        "import sys; from asmtune.store.lookup import fast_lookup\n"
        "from asmtune.store.interchange import find_tuned\n"
        "from store_records import record\n"
        "assert fast_lookup(sys.argv[1], record().key, record().provenance).seen\n"
        "find_tuned(record().key, record().provenance, None)\n"
        "print({'sqlalchemy', 'torch', 'triton', 'sklearn', 'rich', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "set()\n", done.stderr
