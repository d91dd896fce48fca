"""Leases: of many processes that miss one key, one tunes and all get its config."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import pytest
from children import finish, say, start
from sqlalchemy import update
from store_records import PROVENANCE, record, timed

from asmtune.core.config import Config
from asmtune.core.records.tuned import TuneRecord
from asmtune.store import lease as leases
from asmtune.store import tables
from asmtune.store.database import Store
from asmtune.store.lease import LeaseIntervals
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


@pytest.mark.slow
def test_of_32_processes_one_tunes(where: str) -> None:
    """Of 32 processes that miss one key at once, one tunes, and all get the config it found."""
    children = [start(partial(resolve, where, 4096, 0.5)) for _ in range(32)]
    said = [finish(*child).split() for child in children]
    assert [words[0] for words in said].count("tuned") == 1, said
    assert len({words[1] for words in said}) == 1, said
    with Store.open(where) as store:
        assert store.verify() == []


def test_who_does_not_wait_goes_on(where: str) -> None:
    """Without waiting, a key that another tunes is busy at once, and says who tunes it.

    Another source, space or Triton is another lease. None leaves a row or a thread behind.
    """
    with safe_store(where).lease(KEY, PROVENANCE) as first:
        assert "asmtune-lease" in {thread.name for thread in threading.enumerate()}
        for field in ("source", "space", "triton"):
            other = replace(PROVENANCE, **{field: "9.9"})
            with safe_store(where, wait_s=0.0).lease(KEY, other) as second:
                assert second.mine
        with safe_store(where, wait_s=0.0).lease(KEY, PROVENANCE) as second:
            assert first.mine
            assert (second.mine, second.record) == (False, None)
            assert second.holder.endswith(f":{os.getpid()}")
        with safe_store(where, wait_s=0.2).lease(KEY, PROVENANCE) as late:
            assert (late.mine, late.record) == (False, None)
        first.finish(tuned(1))
    with safe_store(where, wait_s=0.0).lease(KEY, PROVENANCE) as third:
        assert (third.mine, third.record, third.holder) == (False, tuned(1), "")
    assert "asmtune-lease" not in {thread.name for thread in threading.enumerate()}
    with Store.open(where) as store:
        assert store.transact(lambda c: c.execute(tables.leases.select()).all()) == []


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
    others = [start(partial(resolve, where, 4096, 0.2)) for _ in range(4)]
    said = [finish(*other).split() for other in others]
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
    with safe_store(where, LeaseIntervals(stale_s=1e9), 0.0).lease(KEY, PROVENANCE) as lease:
        assert lease.mine


@pytest.mark.slow
@pytest.mark.parametrize("wait", [True, False])
def test_a_silent_owner_elsewhere_is_taken_over(where: str, wait: bool) -> None:
    """The key of an owner on another host is free once its counter has not changed for a while.

    Who never waits notices it too, some launches later. One warning says for whom one waits.
    """
    owner_that_dies(where)
    owner = f"elsewhere:{os.getpid()}:{'0' * 16}:1"
    with Store.open(where) as store:
        changed = update(tables.leases).values(owner=owner)
        store.transact(lambda connection: connection.execute(changed), writes=True)
    told: list[str] = []
    patient = safe_store(where, replace(FAST, stale_s=0.5), 60.0 * wait)
    if not wait:
        with patient.lease(KEY, PROVENANCE) as first:
            assert (first.mine, first.holder) == (False, f"elsewhere:{os.getpid()}")
        time.sleep(0.5)
    with patient.lease(KEY, PROVENANCE, on_wait=told.append) as second:
        assert second.mine
    assert told == [f"elsewhere:{os.getpid()}"] * wait


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


def test_ranks_that_force_agree(where: str) -> None:
    """One of several ranks that force a key tunes it anew; the others take its config."""
    safe_store(where).save(tuned(1))

    def force(pipe: int) -> None:
        waits = lambda _: say(pipe, "noted")  # noqa: E731
        with safe_store(where).lease(KEY, PROVENANCE, force=True, on_wait=waits) as lease:
            say(pipe, lease.mine, block(lease.record) if lease.record else "nothing")

    with safe_store(where).lease(KEY, PROVENANCE, force=True) as lease:
        ranks = [start(force) for _ in range(3)]
        assert [os.read(reader, 6) for _, reader in ranks] == [b"noted\n"] * 3
        assert lease.finish(tuned(2)) == tuned(2)
        assert [finish(*rank) for rank in ranks] == ["False 2\n"] * 3


def test_a_forked_child_does_not_let_the_key_go(where: str) -> None:
    """A process that leaves a context that it was forked in leaves its parent's lease alone."""
    with safe_store(where).lease(KEY, PROVENANCE) as lease:
        assert finish(*start(lambda _: lease.__exit__(None, None, None))) == ""
        with safe_store(where, wait_s=0.0).lease(KEY, PROVENANCE) as second:
            assert not second.mine


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
