"""Leases: of many processes that miss one key, one tunes it and the others get its config.

A lease is a row with its owner and a counter, which a thread of the owner increments while the
process is at work. A process that waits watches the counter by its own monotonic clock, and takes
the lease over when the counter has stood still for `stale_s`. Clocks of two processes are never
compared, so that hosts may disagree on the time. A process on the same host that has ended is
not waited for.

A take-over may be wrong: an owner that was stopped may go on. Then two processes tune, and the
one that finishes first counts: `TuningLease.finish` gives both the same record.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, Protocol, Self, TypeVar

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update

from asmtune.base.errors import StoreError
from asmtune.base.fingerprint import digest
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.store import codec, records, rows
from asmtune.store.database import Store
from asmtune.store.lookup import minor_version
from asmtune.store.tables import leases

_T = TypeVar("_T")

_HOST_CHARACTERS: Final = 100
_DIGITS: Final = 16

# Process ids can be compared under one running kernel and in one namespace of it.
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")


@dataclass(frozen=True, kw_only=True)
class LeaseIntervals:
    """Intervals of a lease, in seconds.

    Attributes:
        beat_s: between two beats of an owner.
        stale_s: without a beat, after which a lease is taken over.
        poll_s, poll_most_s: between two reads of a process that waits: the first, and the longest.
    """

    beat_s: float = 2.0
    stale_s: float = 12.0
    poll_s: float = 0.1
    poll_most_s: float = 1.0


@dataclass(frozen=True)
class LeaseRequest:
    """A request for a key's config.

    Attributes:
        key: key of the launch.
        expected: how it would be tuned now.
        force: tune although a record is valid, and replace it.
        on_wait: called with "host:process" of the owner, once, before waiting for it.
    """

    key: TuneKey
    expected: Provenance
    force: bool = False
    on_wait: Callable[[str], None] | None = None

    @property
    def name(self) -> str:
        """Name the lease; processes with another source, space or Triton have another one."""
        now = self.expected
        return digest(codec.key_digest(self.key), now.source, now.space, minor_version(now.triton))


@dataclass(frozen=True)
class Holder:
    """A lease's row: its owner, and how often the owner has beaten."""

    owner: str
    beats: int


def new_owner() -> str:
    """Make a name for one claim of this process: `host:process:id space:random`."""
    host = socket.gethostname().encode("ascii", "replace").decode()[:_HOST_CHARACTERS]
    return f"{host.replace(':', '.')}:{os.getpid()}:{_id_space()}:{secrets.token_hex(8)}"


def short_owner(owner: str) -> str:
    """Shorten an owner for messages: `host:process`."""
    return ":".join(owner.split(":")[:2])


def has_ended(owner: str) -> bool:
    """Tell whether the owner's process has certainly ended.

    That is known only of processes under this kernel, in this namespace of process ids. Where
    another process has the id now, the owner seems alive.
    """
    parts = owner.split(":")
    if len(parts) != 4 or not _id_space() or parts[2] != _id_space() or not parts[1].isdecimal():
        return False
    try:
        with contextlib.suppress(PermissionError, OverflowError):
            os.kill(int(parts[1]), 0)
    except ProcessLookupError:
        return True
    return False


@cache
def _id_space() -> str:
    """Return digits shared by processes whose ids can be compared; empty where unknown."""
    try:
        return digest(_BOOT.read_text(), str(_NAMESPACE.readlink()))[:_DIGITS]
    except OSError:
        return ""


@dataclass
class Claim:
    """A process's view of a key and its lease, as last read.

    Each of `read`, `take`, `beat` and `release` is one transaction, and raises `StoreError` where
    the store cannot be read or written.

    Attributes:
        request: the key and how it would be tuned.
        owner: name of this claim alone.
        replaced: id of the record to be replaced although it is valid.
        record: the key's valid record.
        held: holder of the lease; None where nobody holds it.
    """

    request: LeaseRequest
    owner: str = field(default_factory=new_owner)
    replaced: int | None = None
    record: TuneRecord | None = None
    held: Holder | None = None

    @property
    def mine(self) -> bool:
        """Tell whether this claim holds the lease and no record is there yet."""
        return self.record is None and self.held is not None and self.held.owner == self.owner

    def start(self, store: Store) -> None:
        """Note the record that is to be replaced, where tuning is forced."""
        if self.request.force:
            valid = store.transact(self._valid_record)
            self.replaced = None if valid is None else valid.id

    def read(self, store: Store) -> None:
        """Read the key's record and the lease."""
        store.transact(self._read)

    def take(self, store: Store) -> None:
        """Take the lease, if nothing has changed since it was last read."""
        seen = self.held

        def work(connection: Connection) -> None:
            self._read(connection)
            if self.record is None and not self.mine and self.held == seen:
                connection.execute(delete(leases).where(self._named()))
                row = {"digest": self.request.name, "owner": self.owner, "beats": 0}
                connection.execute(insert(leases).values(row))
                self.held = Holder(self.owner, 0)

        store.transact(work, writes=True)

    def beat(self, store: Store) -> bool:
        """Increment the counter; return False where the lease is no longer this claim's."""
        increment = update(leases).where(self._owned()).values(beats=leases.c.beats + 1)
        return store.transact(lambda c: c.execute(increment).rowcount == 1, writes=True)

    def release(self, store: Store) -> None:
        """Delete the row, unless another process has taken the lease over."""
        store.transact(lambda c: c.execute(delete(leases).where(self._owned())), writes=True)

    def _valid_record(self, connection: Connection) -> rows.LoadedRow[TuneRecord] | None:
        return records.valid(connection, self.request.key, self.request.expected)

    def _read(self, connection: Connection) -> None:
        valid = self._valid_record(connection)
        self.record = None if valid is None or valid.id == self.replaced else valid.value
        row = connection.execute(select(leases).where(self._named())).first()
        self.held = None
        # Treat a damaged row as missing; the next process that takes the lease overwrites it.
        if row is not None and isinstance(row.owner, str) and isinstance(row.beats, int):
            self.held = Holder(row.owner, row.beats)

    def _named(self) -> ColumnElement[bool]:
        return leases.c.digest == self.request.name

    def _owned(self) -> ColumnElement[bool]:
        return and_(self._named(), leases.c.owner == self.owner)


class GuardedCall(Protocol):
    """Run work on a store; give `default` where the store cannot be used."""

    def __call__(self, work: Callable[[Store], _T], default: _T) -> _T:
        """Return the result of `work`, or `default`."""
        ...


class Watch:
    """Notice that an owner has ended, by its counter and this process's clock."""

    def __init__(self, stale_s: float) -> None:
        self._stale_s = stale_s
        self._seen: Holder | None = None
        self._since = 0.0

    def is_over(self, held: Holder | None) -> bool:
        """Tell whether the lease may be taken: nobody holds it, or its owner has ended."""
        now = time.monotonic()
        if held is None or has_ended(held.owner):
            return True
        if held != self._seen:
            self._seen, self._since = held, now
        return now - self._since >= self._stale_s


class TuningLease:
    """The right to tune a key, or what another process made of it; a context that releases it.

    Attributes:
        mine: whether this process is to tune; `finish` then gives the record to use.
        record: the record that another process has tuned, to be used; None where there is none.
        holder: "host:process" of the process that tunes the key, where this one does not and
            no record came in time: go on with the fallback.
    """

    def __init__(
        self, guarded: GuardedCall, claim: Claim | None, heartbeat: HeartbeatThread | None
    ) -> None:
        self.mine = claim is None or claim.mine
        self.record = claim.record if claim else None
        self.holder = ""
        if claim is not None and claim.held is not None and not (self.mine or self.record):
            self.holder = short_owner(claim.held.owner)
        self._guarded, self._claim, self._heartbeat = guarded, claim, heartbeat
        self._process = os.getpid()

    def finish(self, record: TuneRecord) -> TuneRecord:
        """Save the record; return the one that all processes that tuned the key go on with."""
        replaced = self._claim.replaced if self._claim else None
        return self._guarded(lambda store: store.save_first(record, replaced), record)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        heartbeat, self._heartbeat = self._heartbeat, None
        # A forked child shares the object, not the lease.
        if self._claim is None or heartbeat is None or self._process != os.getpid():
            return
        heartbeat.stop()
        self._guarded(self._claim.release, None)


def acquire_lease(
    guarded: GuardedCall,
    request: LeaseRequest,
    *,
    wait_s: float,
    pace: LeaseIntervals,
    watch: Watch | None = None,
) -> TuningLease:
    """Take the lease of a key, or wait for the process that holds it.

    Args:
        guarded: runs work on the store; where it cannot be used, this process tunes.
        request: key and provenance to tune.
        wait_s: seconds to wait for another process's record; 0 does not wait.
        pace: how often to beat and to read.
        watch: what earlier requests of the process saw of this lease.
    """
    watch = watch or Watch(pace.stale_s)

    def work(store: Store) -> tuple[Claim | None, HeartbeatThread | None]:
        claim = Claim(request)
        _wait(store, claim, wait_s, pace, watch)
        return claim, HeartbeatThread(store, claim, pace.beat_s) if claim.mine else None

    alone: tuple[Claim | None, HeartbeatThread | None] = (None, None)
    return TuningLease(guarded, *guarded(work, alone))


def _wait(store: Store, claim: Claim, wait_s: float, pace: LeaseIntervals, watch: Watch) -> None:
    """Wait until there is a record, the claim holds the lease, or the time is over."""
    claim.start(store)
    on_wait = claim.request.on_wait
    end, pause_s = time.monotonic() + wait_s, pace.poll_s
    while True:
        claim.read(store)
        if claim.record is None and watch.is_over(claim.held):
            claim.take(store)
        left_s = end - time.monotonic()
        if claim.record is not None or claim.mine or left_s <= 0:
            return
        if on_wait is not None and claim.held is not None:
            on_wait(short_owner(claim.held.owner))
            on_wait = None
        # Random, so that processes that wait do not read in step.
        time.sleep(min(left_s, pause_s * random.uniform(0.7, 1.0)))
        pause_s = min(1.5 * pause_s, pace.poll_most_s)


class HeartbeatThread:
    """A thread that beats until it is stopped or another process has the lease."""

    def __init__(self, store: Store, claim: Claim, every_s: float) -> None:
        self._store, self._claim, self._every_s = store, claim, every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="asmtune-lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, after a beat that is under way."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                if not self._claim.beat(self._store):
                    return
            except StoreError:
                continue  # the next may go through; if none does, another process takes over
