"""SIGKILL at any moment of a tuning run: the store is sound and holds what was committed."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from children import delays, finish, killed, memory_folder, say, start
from store_records import PROVENANCE, record

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, TuneKey, TuneRecord
from asmtune.store.database import Store
from asmtune.store.safe_store import SafeStore

KILLS = 40
KILLS_OF_A_STORE = 10
CONFIGS = [Config({"BLOCK_M": 16 * (n + 1)}) for n in range(12)]
BATCH = 4

# Times that were reported as kept, by shape and config.
Told = dict[int, dict[int, float]]


def key_of(m: int) -> TuneKey:
    """Give the key of one shape."""
    return replace(record().key, shape={"M": m})


def timing(config: Config, median_us: float) -> Measurement:
    """A timing that can be told from one taken again."""
    return Measurement(config, median_us, median_us, median_us, (median_us,) * 20)


def tune(safe: SafeStore, m: int, pipe: int) -> None:
    """Tune one key as a session does: resume, time batches, keep each, then the record."""
    key = key_of(m)
    with safe.lease(key, PROVENANCE) as lease:
        if not lease.mine:
            return
        known = {t.config: t for t in safe.earlier_outcomes(key, PROVENANCE).measurements}
        for start in range(0, len(CONFIGS), BATCH):
            batch = [c for c in CONFIGS[start : start + BATCH] if c not in known]
            new = [timing(config, 1 + int.from_bytes(os.urandom(6)) / 2**20) for config in batch]
            failures = [(Config({"BLOCK_M": 8 * start + 8}), Failure("launch", "memory", "x"))]
            safe.save_outcomes(key, PROVENANCE, new, failures)
            for taken in new:
                say(pipe, m, CONFIGS.index(taken.config), taken.median_us)
            known |= {taken.config: taken for taken in new}
        lease.finish(TuneRecord(key, CONFIGS[0], tuple(known.values()), PROVENANCE))
        say(pipe, m, "saved")


def session(where: str, pipe: int) -> None:
    """Tune key after key until it is killed; a warning of the store ends it with a message."""
    warnings.simplefilter("error")
    safe = SafeStore(where)
    for m in range(10_000):
        tune(safe, m, pipe)


def listen(text: str, told: Told, saved: set[int]) -> None:
    """Note what a killed process had been told is committed; its last line may be cut off."""
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            continue
        m, what, *median = line.split()
        if what == "saved":
            saved.add(int(m))
        else:
            # Told once alone: what is known is not timed again.
            assert int(what) not in told.setdefault(int(m), {}), line
            told[int(m)][int(what)] = float(median[0])


def check(where: str, told: Told, saved: set[int]) -> None:
    """The store opens without a word, is sound, and holds all that was told."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Store.open(where, on_corrupt="set_aside") as store:
            assert store.verify() == []
            records = {r.key.shape["M"]: r for r in store.records()}
            for m, times in told.items():
                kept = records.get(m) or store.earlier_outcomes(key_of(m), PROVENANCE)
                found = {CONFIGS.index(t.config): t.median_us for t in kept.measurements}
                assert times.items() <= found.items()
            assert saved <= set(records)
            assert all(len(r.measurements) == len(CONFIGS) for r in records.values())


def kill_and_check(where: str, moments: list[float]) -> tuple[Told, set[int]]:
    """Kill one session after another at these moments, each going on where the last was."""
    told: Told = {}
    saved: set[int] = set()
    for moment in moments:
        listen(killed(partial(session, where), moment), told, saved)
        check(where, told, saved)
    return told, saved


def seconds_to_a_record(place: Callable[[], AbstractContextManager[str]]) -> float:
    """Time a session until its store and first record exist; the least of three times."""
    found = []
    for _ in range(3):
        with place() as where:
            began = time.perf_counter()
            child, reader = start(partial(session, where))
            with os.fdopen(os.dup(reader)) as lines:
                assert any(line.endswith("saved\n") for line in lines)
            found.append(time.perf_counter() - began)
            os.kill(child, signal.SIGKILL)
            finish(child, reader)
    return min(found)


@contextmanager
def store_file() -> Iterator[str]:
    """Where a store may be made, in a folder that is not there yet."""
    with memory_folder() as folder:
        yield str(Path(folder) / "cache" / "store.sqlite")


@pytest.mark.slow(seconds=6)
def test_killed_at_40_moments_of_tuning() -> None:
    """Whenever a tuning process is killed, from making the store on, the next one goes on."""
    moments = delays(KILLS, 3 * seconds_to_a_record(store_file), seed=4)
    timings = records = 0
    for first in range(0, KILLS, KILLS_OF_A_STORE):
        with store_file() as where:
            told, saved = kill_and_check(where, moments[first : first + KILLS_OF_A_STORE])
            folder = Path(where).parent
            assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
            assert folder.stat().st_mode & 0o777 == 0o700
        timings += sum(map(len, told.values()))
        records += len(saved)
    assert timings > 10 * KILLS_OF_A_STORE
    assert records > KILLS_OF_A_STORE


@pytest.mark.slow
def test_killed_while_tuning_on_a_server(request: pytest.FixtureRequest) -> None:
    """The same holds where the store is a server's."""
    server = request.getfixturevalue("postgres")
    longest_s = 3 * seconds_to_a_record(lambda: nullcontext(server.new_store()))
    told, saved = kill_and_check(server.new_store(), delays(15, longest_s, seed=5))
    assert told
    assert saved
