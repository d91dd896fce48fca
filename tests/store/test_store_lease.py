"""Leases: of many processes that miss one key, one tunes and all get its config."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from children import finish, say, start
from sqlalchemy import update
from store_records import PROVENANCE, record, timed

from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneRecord
from asmtune.store import lease as leases
from asmtune.store import tables
from asmtune.store.database import Store
from asmtune.store.lease import Claim, LeaseIntervals
from asmtune.store.safe_store import SafeStore

KEY = record().key
FAST = LeaseIntervals(beat_s=0.1, stale_s=1.0, poll_s=0.02, poll_most_s=0.1)
PATIENT = replace(FAST, stale_s=60.0)
"""Where no owner is silent: of 32 processes on two cores, one may get no turn for a second."""


def safe_store(where: str, pace: LeaseIntervals = FAST, wait_s: float = 60.0) -> SafeStore:
    """A safe store that waits for locks as long as 32 processes on two cores may take."""
    return SafeStore(where, wait_s=wait_s, patience_s=30.0, pace=pace)


def tuned(value: int, **changes: object) -> TuneRecord:
    """A record whose winner tells who tuned it."""
    config = Config({"BLOCK_M": value})
    return record(winner=config, measurements=(timed(config),), **changes)


def block(made: TuneRecord) -> int:
    """Read the field that tells who tuned a record."""
    return int(made.winner.kwargs["BLOCK_M"])


def resolve(where: str, m: int, tune_s: float, pipe: int) -> None:
    """Resolve as a launch does: use the stored config, wait, or tune; say which it was."""
    used = safe_store(where, PATIENT)
    mine = tuned(os.getpid(), key=record(m).key)
    with used.lease(mine.key, PROVENANCE) as lease:
        found = lease.record
        if lease.mine:
            time.sleep(tune_s)
            found = lease.finish(mine)
    assert used.working
    say(pipe, "tuned" if lease.mine else "found", block(found) if found else "nothing")


def outcomes(works: list[Callable[[int], object]]) -> list[list[str]]:
    """The words that processes of these works say."""
    children = [start(work) for work in works]
    return [finish(*child).split() for child in children]


@pytest.mark.slow
def test_of_32_processes_one_tunes(where: str) -> None:
    """Of 32 processes that miss one key at once, one tunes, and all get the config it found."""
    said = outcomes([partial(resolve, where, 4096, 0.5)] * 32)
    assert [words[0] for words in said].count("tuned") == 1, said
    assert len({words[1] for words in said}) == 1, said
    with Store.open(where) as store:
        assert store.verify() == []


@pytest.mark.slow
def test_ranks_of_a_job_end_up_with_the_same_configs(where: str) -> None:
    """Eight ranks that meet three keys, each in another order, agree on every config."""

    def rank(n: int, pipe: int) -> None:
        for m in range(3):
            resolve(where, (m + n) % 3, 0.05, pipe)

    said = outcomes([partial(rank, n) for n in range(8)])
    assert all(len(words) == 6 for words in said), said
    for m in range(3):
        assert len({words[2 * ((m - n) % 3) + 1] for n, words in enumerate(said)}) == 1
    assert sum(words.count("tuned") for words in said) == 3


def test_who_does_not_wait_goes_on(where: str) -> None:
    """Without waiting, a key that another tunes is busy at once, and says who tunes it."""
    with safe_store(where).lease(KEY, PROVENANCE) as first:
        with safe_store(where).lease(KEY, PROVENANCE, wait=False) as second:
            assert first.mine
            assert (second.mine, second.record) == (False, None)
            assert second.holder.endswith(f":{os.getpid()}")
        first.finish(tuned(1))
    with safe_store(where).lease(KEY, PROVENANCE, wait=False) as third:
        assert (third.mine, third.record, third.holder) == (False, tuned(1), "")


@pytest.mark.slow
def test_waiting_ends(where: str) -> None:
    """Who waits longer than is set for an owner that lives goes on without a record."""
    # Longer than an owner may be silent: this one beats, and is left at it.
    waiting = safe_store(where, replace(FAST, stale_s=2.0), wait_s=3.0)
    told: list[str] = []
    with (
        safe_store(where).lease(KEY, PROVENANCE, on_wait=told.append),
        waiting.lease(KEY, PROVENANCE, on_wait=told.append) as second,
    ):
        assert (second.mine, second.record) == (False, None)
        assert told == [second.holder]  # once, by the one that waits


@pytest.mark.slow
def test_a_failed_tuner_lets_the_key_go(where: str) -> None:
    """When the one that tunes fails, one of those that wait tries, and the rest get its config."""

    def fail(pipe: int) -> None:
        with safe_store(where).lease(KEY, PROVENANCE) as lease:
            say(pipe, "has it")
            time.sleep(0.3)
            assert lease.mine
            raise KeyboardInterrupt

    child, reader = start(fail)
    assert os.read(reader, 7) == b"has it\n"
    said = outcomes([partial(resolve, where, 4096, 0.2)] * 4)
    assert "KeyboardInterrupt" in finish(child, reader)
    assert [words[0] for words in said].count("tuned") == 1, said
    assert len({words[1] for words in said}) == 1, said


def owner_that_dies(where: str) -> None:
    """Leave a lease whose owner was killed."""

    def hold(pipe: int) -> None:
        with safe_store(where).lease(KEY, PROVENANCE):
            say(pipe, "has it")
            time.sleep(60)

    child, reader = start(hold)
    assert os.read(reader, 7) == b"has it\n"
    os.kill(child, signal.SIGKILL)
    finish(child, reader)


def test_a_killed_owner_on_this_host_holds_nobody_up(where: str) -> None:
    """The key of a process that was killed on this host is free at once, waiting or not."""
    owner_that_dies(where)
    with safe_store(where, LeaseIntervals(stale_s=1e9)).lease(KEY, PROVENANCE, wait=False) as lease:
        assert lease.mine


def move_elsewhere(where: str) -> None:
    """Make the lease's owner a process of another host."""
    owner = f"elsewhere:{os.getpid()}:{'0' * 16}:1"
    with Store.open(where) as store:
        changed = update(tables.leases).values(owner=owner)
        store.transact(lambda connection: connection.execute(changed), writes=True)


@pytest.mark.slow
def test_a_silent_owner_elsewhere_is_taken_over(where: str) -> None:
    """The key of an owner on another host is free once its counter has stood still."""
    owner_that_dies(where)
    move_elsewhere(where)
    with safe_store(where).lease(KEY, PROVENANCE) as lease:
        assert lease.mine


@pytest.mark.slow
def test_silence_is_noticed_without_waiting(where: str) -> None:
    """Who never waits takes a silent owner's key over too, some launches later."""
    owner_that_dies(where)
    move_elsewhere(where)
    patient = safe_store(where, LeaseIntervals(stale_s=0.3))
    with patient.lease(KEY, PROVENANCE, wait=False) as first:
        assert not first.mine
        assert first.holder == f"elsewhere:{os.getpid()}"
    time.sleep(0.3)
    with patient.lease(KEY, PROVENANCE, wait=False) as second:
        assert second.mine


@pytest.mark.slow
def test_an_owner_that_was_stopped_agrees_in_the_end(where: str) -> None:
    """An owner that is taken over while it is stopped goes on with the other's config."""

    def hold(pipe: int) -> None:
        with safe_store(where).lease(KEY, PROVENANCE) as lease:
            say(pipe, "has it")
            assert lease.mine
            os.kill(os.getpid(), signal.SIGSTOP)
            say(pipe, block(lease.finish(tuned(1))))

    child, reader = start(hold)
    assert os.read(reader, 7) == b"has it\n"
    os.waitpid(child, os.WUNTRACED)
    with safe_store(where).lease(KEY, PROVENANCE) as lease:
        assert lease.mine
        assert lease.finish(tuned(2)) == tuned(2)
        os.kill(child, signal.SIGCONT)
        assert finish(child, reader) == "2\n"
    with safe_store(where).lease(KEY, PROVENANCE) as lease:
        assert lease.record == tuned(2)


def test_forced_tuning_replaces_what_is_there(where: str) -> None:
    """Forced, a key is tuned although a record holds, and the new one takes its place."""
    used = safe_store(where)
    used.save(tuned(1))
    with used.lease(KEY, PROVENANCE) as lease:
        assert lease.record == tuned(1)
    with used.lease(KEY, PROVENANCE, force=True) as lease:
        assert lease.mine
        assert lease.finish(tuned(2)) == tuned(2)
    assert used.lookup(KEY, PROVENANCE).record == tuned(2)


def test_ranks_that_force_agree(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ranks that all force one key, one tunes, and the others take its record."""
    safe_store(where).save(tuned(1))
    note = Claim.start

    def force(pipe: int) -> None:
        def noted(self: Claim, store: Store) -> None:
            note(self, store)
            say(pipe, "noted")

        monkeypatch.setattr(Claim, "start", noted)
        with safe_store(where).lease(KEY, PROVENANCE, force=True) as lease:
            say(pipe, lease.mine, block(lease.record) if lease.record else "nothing")

    with safe_store(where).lease(KEY, PROVENANCE, force=True) as lease:
        ranks = [start(force) for _ in range(3)]
        assert [os.read(reader, 6) for _, reader in ranks] == [b"noted\n"] * 3
        assert lease.finish(tuned(2)) == tuned(2)
        assert [finish(*rank) for rank in ranks] == ["False 2\n"] * 3


@pytest.mark.parametrize("field", ["source", "space", "triton"])
def test_other_sources_do_not_meet(where: str, field: str) -> None:
    """Processes with another source, space or Triton do not wait for each other."""
    other = replace(PROVENANCE, **{field: "9.9"})
    with safe_store(where).lease(KEY, PROVENANCE), safe_store(where).lease(KEY, other) as second:
        assert second.mine


def test_a_forked_child_does_not_let_the_key_go(where: str) -> None:
    """A process that leaves a context that it was forked in leaves its parent's lease alone."""
    with safe_store(where).lease(KEY, PROVENANCE) as lease:
        assert finish(*start(lambda _: lease.__exit__(None, None, None))) == ""
        with safe_store(where).lease(KEY, PROVENANCE, wait=False) as second:
            assert not second.mine


def test_nothing_is_left(where: str) -> None:
    """A lease that has ended leaves no row and no thread behind."""
    with safe_store(where).lease(KEY, PROVENANCE):
        assert "asmtune-lease" in {thread.name for thread in threading.enumerate()}
    assert "asmtune-lease" not in {thread.name for thread in threading.enumerate()}
    with Store.open(where) as store:
        assert store.transact(lambda c: c.execute(tables.leases.select()).all()) == []


def test_owners_that_are_gone() -> None:
    """Only a process that ran here and is no more is gone; of others nothing is known."""
    child, reader = start(lambda pipe: os.write(pipe, leases.new_owner().encode()))
    dead = finish(child, reader)
    host, process, home, random = dead.split(":")
    assert leases.has_ended(dead)
    assert leases.short_owner(dead) == f"{host}:{process}"
    assert not leases.has_ended(leases.new_owner())
    assert not leases.has_ended(f"{host}:1:{home}:{random}")
    assert not leases.has_ended(f"{host}:{process}:{'0' * 16}:{random}")
    assert not leases.has_ended(f"{host}:{'9' * 30}:{home}:{random}")
    assert not any(map(leases.has_ended, ["", "x", "::::", f"{host}:x:{home}:{random}"]))


def test_unknown_homes_are_not_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the system does not tell which processes share their ids, none is taken for gone."""
    monkeypatch.setattr(leases, "_BOOT", tmp_path / "missing")
    leases._id_space.cache_clear()
    try:
        child, reader = start(lambda pipe: os.write(pipe, leases.new_owner().encode()))
        assert not leases.has_ended(finish(child, reader))
    finally:
        leases._id_space.cache_clear()
