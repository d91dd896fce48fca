"""The user's store as launches and tuning use it: what is wrong with it costs a warning.

shelf = open_user_store(settings)
found = find_tuned(key, expected, shelf)
if found.outcome == "hit": ...                  # use found.record
with shelf.flight(key, expected) as flight:     # waits while another process tunes the key
if flight.record is not None: ...           # use it: another process has tuned
elif not flight.mine: ...                   # another still tunes: use the heuristic
else: record = flight.finish(tune())        # use what it gives back
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final, TypeVar

from asmtune.base.errors import InputError, StoreError
from asmtune.base.settings import Settings
from asmtune.base.stacklevel import user_stacklevel
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance, TuneKey, TuneRecord
from asmtune.store.database import Store
from asmtune.store.lease import LeaseIntervals, TuningLease, Watch, acquire_lease
from asmtune.store.lease_row import LeaseRequest
from asmtune.store.lookup import Remembered, StoredPrediction, StoreLookup, StoreWarning

_T = TypeVar("_T")

PATIENCE_S: Final = 10.0
"""How long one call of a shelf waits for a lock. Writers hold SQLite's for some 10 ms each, on
a slow disk, and are not served in turn; who holds it for longer must not hold a launch up."""


class SafeStore:
    """A store that never raises; opened when first used.

    The first error of the store gives one `StoreWarning`. From then on nothing
    is found and nothing kept, for the rest of the shelf's life: each further
    try could wait as long as the first. No call waits for a lock for longer than
    `patience_s`, or for a server that is down for longer than 5 s, and thrice that
    where the store has to be opened and made.

    Args:
        where: as `Store.open` takes it.
        wait_s: how long `flight` waits for another process's record.
        patience_s: how long one call waits.
        pace: of flights.
    """

    def __init__(
        self,
        where: str,
        *,
        wait_s: float = 600.0,
        patience_s: float = PATIENCE_S,
        pace: LeaseIntervals | None = None,
    ) -> None:
        self._where = where
        self._wait_s = wait_s
        self._patience_s = patience_s
        self._pace = pace or LeaseIntervals()
        self._store: Store | None = None
        self._working = True
        self._told: set[str] = set()
        self._watches: dict[str, Watch] = {}
        self._lock = threading.Lock()

    @property
    def working(self) -> bool:
        """Whether the store has not failed so far."""
        return self._working

    def lookup(self, key: TuneKey, expected: Provenance) -> StoreLookup:
        """As `Store.lookup`; a miss where the store cannot be used."""
        lost = StoreLookup("miss", detail="the store cannot be used")
        return self._attempt(lambda store: store.lookup(key, expected), lost)

    def records(self, kernel: str | None = None, device: str | None = None) -> list[TuneRecord]:
        """As `Store.records`; none where the store cannot be used."""
        return self._attempt(lambda store: store.records(kernel, device), [])

    def remembered(self, key: TuneKey, expected: Provenance) -> Remembered:
        """As `Store.remembered`; nothing where the store cannot be used."""
        return self._attempt(lambda store: store.remembered(key, expected), Remembered())

    def remember(
        self,
        key: TuneKey,
        provenance: Provenance,
        measurements: Iterable[Measurement] = (),
        failures: Iterable[tuple[Config, Failure]] = (),
    ) -> None:
        """As `Store.remember`; does nothing where the store cannot be used."""
        self._attempt(lambda store: store.remember(key, provenance, measurements, failures), None)

    def predict(self, prediction: StoredPrediction) -> None:
        """As `Store.predict`; does nothing where the store cannot be used."""
        self._attempt(lambda store: store.predict(prediction), None)

    def predicted(self, key: TuneKey, expected: Provenance) -> StoredPrediction | None:
        """As `Store.predicted`; None where the store cannot be used."""
        return self._attempt(lambda store: store.predicted(key, expected), None)

    def save(self, record: TuneRecord) -> None:
        """As `Store.save`; does nothing where the store cannot be used."""
        self._attempt(lambda store: store.save(record), None)

    def flight(
        self,
        key: TuneKey,
        expected: Provenance,
        *,
        wait: bool = True,
        force: bool = False,
        on_wait: Callable[[str], None] | None = None,
    ) -> TuningLease:
        """Claims a key for tuning, or waits for who has; a context to tune in.

        A process must not claim a key again before it has let it go: it would wait
        for itself.

        Args:
            key: what is about to be launched.
            expected: how it would be tuned now.
            wait: whether to wait for another process that tunes the key.
            force: whether to tune although a record holds already.
            on_wait: told "host:process" of who tunes the key, once, before waiting for it.
        """
        wait_s = self._wait_s if wait else 0.0
        request = LeaseRequest(key, expected, force, on_wait)
        # Kept from call to call: who never waits still sees, in time, that an owner has ended.
        watch = self._watches.setdefault(request.name, Watch(self._pace.stale_s))
        return acquire_lease(self._attempt, request, wait_s=wait_s, pace=self._pace, watch=watch)

    def close(self) -> None:
        """Lets go of the database; the next call opens it again."""
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()

    def _attempt(self, work: Callable[[Store], _T], otherwise: _T) -> _T:
        try:
            store = self._opened()
            return otherwise if store is None else work(store)
        except StoreError as error:
            self._give_up(f"{error}; going on without the store")
        except InputError as error:
            if self._store is None:
                self._give_up(f"{error}; going on without the store")
            else:
                self._tell(f"{error}; it is not kept")
        return otherwise

    def _opened(self) -> Store | None:
        with self._lock:
            if self._working and self._store is None:
                self._store = Store.open(
                    self._where, on_corrupt="set_aside", patience_s=self._patience_s
                )
            return self._store if self._working else None

    def _give_up(self, message: str) -> None:
        with self._lock:
            first, self._working = self._working, False
        if first:
            self._tell(message)

    def _tell(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            warnings.warn(message, StoreWarning, stacklevel=user_stacklevel())


def open_user_store(settings: Settings) -> SafeStore:
    """The shelf of the user's store: one a process and place, so that it warns once."""
    return _shelf(settings.store_where, settings.wait_s)


@cache
def _shelf(where: str, wait_s: float) -> SafeStore:
    return SafeStore(where, wait_s=wait_s)
