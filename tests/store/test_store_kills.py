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
from asmtune.core.records.tuned import Measurement, TuneKey, TuneRecord
from asmtune.store.database import Store
from asmtune.store.safe_store import SafeStore

KILLS = 40
KILLS_OF_A_STORE = 10
CONFIGS = [Config({"BLOCK_M": 16 * (n + 1)}) for n in range(12)]


def key_of(m: int) -> TuneKey:
    """Give the key of one shape."""
    return replace(record().key, shape={"M": m})


def timing(config: Config, median_us: float) -> Measurement:
    """A timing that can be told from one taken again."""
    return Measurement(config, median_us, median_us, median_us, (median_us,) * 20)


def tune(safe: SafeStore, m: int, pipe: int) -> None:
    """Tune one key as a session does, under a lease, and tell the time that is stored."""
    key = key_of(m)
    with safe.lease(key, PROVENANCE) as lease:
        if not lease.mine:
            return
        timed = [timing(config, 1 + int.from_bytes(os.urandom(6)) / 2**20) for config in CONFIGS]
        lease.finish(TuneRecord(key, CONFIGS[0], tuple(timed), PROVENANCE))
        say(pipe, m, timed[0].median_us)


def session(where: str, pipe: int) -> None:
    """Tune key after key until it is killed; a warning of the store ends it with a message."""
    warnings.simplefilter("error")
    safe = SafeStore(where)
    for m in range(10_000):
        tune(safe, m, pipe)


def listen(text: str, told: dict[int, float]) -> None:
    """Note what a killed process had been told is committed; its last line may be cut off."""
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            m, median_us = line.split()
            # Told once alone: what is known is not timed again.
            assert int(m) not in told, line
            told[int(m)] = float(median_us)


def check(where: str, told: dict[int, float]) -> None:
    """The store opens without a word, is sound, and holds all that was told."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Store.open(where, on_corrupt="set_aside") as store:
            assert store.verify() == []
            records = {r.key.shape["M"]: r for r in store.records()}
            assert told.items() <= {m: r.median_us for m, r in records.items()}.items()
            assert all(len(r.measurements) == len(CONFIGS) for r in records.values())


def kill_and_check(where: str, moments: list[float]) -> dict[int, float]:
    """Kill one session after another at these moments, each going on where the last was."""
    told: dict[int, float] = {}
    for moment in moments:
        listen(killed(partial(session, where), moment), told)
        check(where, told)
    return told


def seconds_to_a_record(place: Callable[[], AbstractContextManager[str]]) -> float:
    """Time a session until its store and first record exist; the least of three times."""
    found = []
    for _ in range(3):
        with place() as where:
            began = time.perf_counter()
            child, reader = start(partial(session, where))
            with os.fdopen(os.dup(reader)) as lines:
                assert any(line.endswith("\n") for line in lines)
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
    records = 0
    for first in range(0, KILLS, KILLS_OF_A_STORE):
        with store_file() as where:
            told = kill_and_check(where, moments[first : first + KILLS_OF_A_STORE])
            folder = Path(where).parent
            assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
            assert folder.stat().st_mode & 0o777 == 0o700
        records += len(told)
    assert records > KILLS_OF_A_STORE


@pytest.mark.slow
def test_killed_while_tuning_on_a_server(request: pytest.FixtureRequest) -> None:
    """The same holds where the store is a server's."""
    server = request.getfixturevalue("postgres")
    longest_s = 3 * seconds_to_a_record(lambda: nullcontext(server.new_store()))
    assert kill_and_check(server.new_store(), delays(15, longest_s, seed=5))
