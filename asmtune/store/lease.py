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
from typing import Any, Final, NamedTuple, Self

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update

from asmtune.base.errors import StoreError
from asmtune.base.fingerprint import digest
from asmtune.core.records.tuned import Provenance, TuneKey, TuneRecord
from asmtune.store import codec, tables
from asmtune.store.database import Store
from asmtune.store.lookup import minor_version
from asmtune.store.tables import leases

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


class Holder(NamedTuple):
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
        key: key of the launch.
        expected: how it would be tuned now.
        force: tune although a record is valid, and replace it: the first that is read.
        owner: name of this claim alone.
        replaced: id of the record to be replaced although it is valid.
        record: the key's valid record.
        held: holder of the lease; None where nobody holds it.
    """

    key: TuneKey
    expected: Provenance
    force: bool = False
    owner: str = field(default_factory=new_owner)
    replaced: int | None = None
    record: TuneRecord | None = None
    held: Holder | None = None

    @property
    def name(self) -> str:
        """Name the lease; processes with another source, space or Triton have another one."""
        now = self.expected
        return digest(codec.key_digest(self.key), now.source, now.space, minor_version(now.triton))

    @property
    def mine(self) -> bool:
        """Tell whether this claim holds the lease and no record is there yet."""
        return self.record is None and self.held is not None and self.held.owner == self.owner

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
                row = {"digest": self.name, "owner": self.owner, "beats": 0}
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

    def _read(self, connection: Connection) -> None:
        valid = tables.valid(connection, self.key, self.expected)
        if self.force and valid is not None:
            self.replaced = valid.row.id
        self.force = False
        self.record = None if valid is None or valid.row.id == self.replaced else valid.value
        row = connection.execute(select(leases).where(self._named())).first()
        self.held = None
        # Treat a damaged row as missing; the next process that takes the lease overwrites it.
        if row is not None and isinstance(row.owner, str) and isinstance(row.beats, int):
            self.held = Holder(row.owner, row.beats)

    def _named(self) -> ColumnElement[bool]:
        return leases.c.digest == self.name

    def _owned(self) -> ColumnElement[bool]:
        return and_(self._named(), leases.c.owner == self.owner)


Guarded = Callable[[Callable[[Store], Any], Any], Any]
"""Runs work on a store; gives its second argument where the store cannot be used."""


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
        record: the record to use, if another process has tuned one; else None.
        holder: "host:process" of the process that tunes the key, where this one does not and
            no record came in time: go on with the fallback.
    """

    def __init__(
        self, guarded: Guarded, claim: Claim | None, end: Callable[[], None] | None
    ) -> None:
        self.mine = claim is None or claim.mine
        self.record = claim.record if claim else None
        self.holder = ""
        if claim is not None and claim.held is not None and not (self.mine or self.record):
            self.holder = short_owner(claim.held.owner)
        self._guarded, self._claim, self._end = guarded, claim, end
        self._process = os.getpid()

    def finish(self, record: TuneRecord) -> TuneRecord:
        """Save the record; return the one that all processes that tuned the key go on with."""
        replaced = self._claim.replaced if self._claim else None
        saved: TuneRecord = self._guarded(lambda store: store.save_first(record, replaced), record)
        return saved

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end, self._end = self._end, None
        # A forked child shares the object, not the lease.
        if end is None or self._claim is None or self._process != os.getpid():
            return
        end()
        self._guarded(self._claim.release, None)


def acquire_lease(
    guarded: Guarded,
    claim: Claim,
    *,
    wait_s: float,
    pace: LeaseIntervals,
    watch: Watch,
    on_wait: Callable[[str], None] | None = None,
) -> TuningLease:
    """Take the lease of a key, or wait for the process that holds it.

    Args:
        guarded: runs work on the store; where it cannot be used, this process tunes.
        claim: key and provenance to tune.
        wait_s: seconds to wait for another process's record; 0 does not wait.
        pace: how often to beat and to read.
        watch: what earlier claims of the process saw of this lease.
        on_wait: called with "host:process" of the owner, once, before waiting for it.
    """

    def work(store: Store) -> tuple[Claim | None, Callable[[], None] | None]:
        _wait(store, claim, wait_s, pace, watch, on_wait)
        return claim, _beating(store, claim, pace.beat_s) if claim.mine else None

    return TuningLease(guarded, *guarded(work, (None, None)))


def _wait(
    store: Store,
    claim: Claim,
    wait_s: float,
    pace: LeaseIntervals,
    watch: Watch,
    on_wait: Callable[[str], None] | None,
) -> None:
    """Wait until there is a record, the claim holds the lease, or the time is over."""
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


def _beating(store: Store, claim: Claim, every_s: float) -> Callable[[], None]:
    """Start a thread that beats until another process has the lease; return what ends it."""
    stopped = threading.Event()

    def run() -> None:
        while not stopped.wait(every_s):
            try:
                if not claim.beat(store):
                    return
            except StoreError:
                continue  # the next may go through; if none does, another process takes over

    thread = threading.Thread(target=run, name="asmtune-lease", daemon=True)
    thread.start()

    def stop() -> None:
        stopped.set()
        thread.join()  # after a beat that is under way

    return stop
