"""Single flight: of many processes that miss one key, one tunes and the others get its config.

A flight is a row: whose it is, and a counter that its owner's thread raises
while it is at work. Who finds the row watches the counter by its own monotonic
clock, and takes the row over when the counter has stood still for `stale_s`; no
clock is compared between processes, so that hosts may disagree on the time. Of
an owner on the same host whose process is gone nothing is waited for.

Taking over may be wrong: an owner that was stopped may go on. Then two tune,
and the one that finishes first counts: `finish` gives both the same record.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypeVar

from asmtune.base.errors import StoreError
from asmtune.core.records.tuned import TuneRecord
from asmtune.store import process_ids
from asmtune.store.database import Store
from asmtune.store.lease_row import Claim, Holder, LeaseRequest

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class LeaseIntervals:
    """How often flights are looked after, in seconds.

    Attributes:
        beat_s: between two beats of an owner.
        stale_s: without a beat, after which a flight is taken over.
        poll_s, poll_most_s: between two looks of one who waits: at first, and in the end.
    """

    beat_s: float = 2.0
    stale_s: float = 12.0
    poll_s: float = 0.1
    poll_most_s: float = 1.0


class Attempt(Protocol):
    """Runs work on a store; gives `otherwise` where the store cannot be used."""

    def __call__(self, work: Callable[[Store], _T], otherwise: _T) -> _T:
        """What `work` returns, or `otherwise`."""
        ...


class Watch:
    """Whether an owner has ended, by its counter and this process's clock."""

    def __init__(self, stale_s: float) -> None:
        self._stale_s = stale_s
        self._seen: Holder | None = None
        self._since = 0.0

    def is_over(self, held: Holder | None) -> bool:
        """Whether the flight may be taken: nobody's, or of an owner that has ended."""
        now = time.monotonic()
        if held is None or process_ids.is_gone(held.owner):
            return True
        if held != self._seen:
            self._seen, self._since = held, now
        return now - self._since >= self._stale_s


class TuningLease:
    """One process's way to a key's config; a context, at whose end the key is let go.

    Attributes:
        mine: whether this process is to tune; `finish` then gives the record to use.
        record: what another process has tuned, to be used; None where there is none.
        holder: "host:process" of who tunes the key, where neither this process does nor
            a record came in time: go on with the heuristic.
    """

    def __init__(
        self, attempt: Attempt, claim: Claim | None, heart: HeartbeatThread | None
    ) -> None:
        self.mine = claim is None or claim.mine
        self.record = claim.record if claim else None
        self.holder = ""
        if claim is not None and claim.held is not None and not (self.mine or self.record):
            self.holder = process_ids.spoken(claim.held.owner)
        self._attempt, self._claim, self._heart = attempt, claim, heart
        self._process = os.getpid()

    def finish(self, record: TuneRecord) -> TuneRecord:
        """Keeps what was tuned; the record that all who tuned the key go on with."""
        replaced = self._claim.replaced if self._claim else None
        return self._attempt(lambda store: store.keep_first(record, replaced), record)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        heart, self._heart = self._heart, None
        # A forked child shares the object, not the flight.
        if self._claim is None or heart is None or self._process != os.getpid():
            return
        heart.stop()
        self._attempt(self._claim.release, None)


def acquire_lease(
    attempt: Attempt,
    request: LeaseRequest,
    *,
    wait_s: float,
    pace: LeaseIntervals,
    watch: Watch | None = None,
) -> TuningLease:
    """Claims a key, or waits for who has.

    Args:
        attempt: gives the store; where it cannot be used, the flight is this process's.
        request: what is wanted.
        wait_s: seconds to wait for another process's record; 0 does not wait.
        pace: how often to look.
        watch: what earlier flights of the process saw of this one.
    """
    watch = watch or Watch(pace.stale_s)

    def work(store: Store) -> tuple[Claim | None, HeartbeatThread | None]:
        claim = Claim(request)
        _settle(store, claim, wait_s, pace, watch)
        return claim, HeartbeatThread(store, claim, pace.beat_s) if claim.mine else None

    alone: tuple[Claim | None, HeartbeatThread | None] = (None, None)
    return TuningLease(attempt, *attempt(work, alone))


def _settle(store: Store, claim: Claim, wait_s: float, pace: LeaseIntervals, watch: Watch) -> None:
    """Looks until there is a record, the flight is the claim's, or the time is over."""
    claim.start(store)
    tell = claim.request.on_wait
    end, pause_s = time.monotonic() + wait_s, pace.poll_s
    while True:
        claim.look(store)
        if claim.record is None and watch.is_over(claim.held):
            claim.take(store)
        left_s = end - time.monotonic()
        if claim.record is not None or claim.mine or left_s <= 0:
            return
        if tell is not None and claim.held is not None:
            tell(process_ids.spoken(claim.held.owner))
            tell = None
        # Never in step with others who wait.
        time.sleep(min(left_s, pause_s * random.uniform(0.7, 1.0)))
        pause_s = min(1.5 * pause_s, pace.poll_most_s)


class HeartbeatThread:
    """A thread that beats until it is stopped or the flight is another's."""

    def __init__(self, store: Store, claim: Claim, every_s: float) -> None:
        self._store, self._claim, self._every_s = store, claim, every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="asmtune-flight", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, after a beat that is under way."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                if not self._claim.beat(self._store):
                    return
            except StoreError:
                continue  # the next may go through; if none does, another process takes over
