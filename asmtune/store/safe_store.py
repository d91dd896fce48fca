"""`SafeStore`: the user's store for launches and tuning, whose errors become warnings.

Use:

    store = open_user_store(settings)
    found = find_tuned(key, expected, store)
    if found.outcome == "hit": ...               # use found.record
    with store.lease(key, expected) as lease:    # waits while another process tunes the key
        if lease.record is not None: ...         # use it: another process has tuned
        elif not lease.mine: ...                 # another process still tunes: use the heuristic
        else: record = lease.finish(tune())      # use what it returns
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import cache, wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from asmtune.base.errors import InputError, StoreError
from asmtune.base.settings import Settings
from asmtune.base.text import user_stacklevel
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.store.database import Store
from asmtune.store.lease import LeaseIntervals, LeaseRequest, TuningLease, Watch, acquire_lease
from asmtune.store.lookup import EarlierOutcomes, StoreLookup, StoreWarning

_T = TypeVar("_T")
_P = ParamSpec("_P")

PATIENCE_S: Final = 10.0
"""Seconds that one call waits for a lock. Writers hold SQLite's for some 10 ms each, on a slow
disk, and are not served in turn; a process that holds it for longer must not delay a launch."""


def _guarded(
    operation: Callable[Concatenate[Store, _P], _T], default: Callable[[], _T]
) -> Callable[Concatenate[SafeStore, _P], _T]:
    """Make a method of `SafeStore` of one of `Store`; `default` makes its result on failure."""

    @wraps(operation)
    def method(self: SafeStore, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._call(lambda store: operation(store, *args, **kwargs), default())

    return method


class SafeStore:
    """A store that never raises; opened when first used.

    The first error gives one `StoreWarning`. From then on nothing is found and nothing is saved
    for the rest of this object's life: each further try could wait as long as the first. No call
    waits for a lock for longer than `patience_s`, or for a server that is down for longer than
    5 s, and thrice that where the store has to be opened and made.

    Methods that `Store` has too do the same here; where the store cannot be used, they find
    nothing and save nothing.

    Args:
        where: path or URL, as for `Store.open`.
        wait_s: seconds that `lease` waits for another process's record.
        patience_s: seconds that one call waits for a lock.
        pace: intervals of leases.
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
        self._warned: set[str] = set()
        self._watches: dict[str, Watch] = {}
        self._lock = threading.Lock()

    @property
    def working(self) -> bool:
        """Tell whether the store has not failed so far."""
        return self._working

    lookup = _guarded(Store.lookup, lambda: StoreLookup("miss", detail="the store cannot be used"))
    records = _guarded(Store.records, list)
    save = _guarded(Store.save, lambda: None)
    earlier_outcomes = _guarded(Store.earlier_outcomes, EarlierOutcomes)
    save_outcomes = _guarded(Store.save_outcomes, lambda: None)
    find_prediction = _guarded(Store.find_prediction, lambda: None)
    save_prediction = _guarded(Store.save_prediction, lambda: None)

    def lease(
        self,
        key: TuneKey,
        expected: Provenance,
        *,
        wait: bool = True,
        force: bool = False,
        on_wait: Callable[[str], None] | None = None,
    ) -> TuningLease:
        """Take the lease of a key for tuning, or wait for the process that holds it.

        A process must release a key before it asks for it again: it would wait for itself.

        Args:
            key: key of the launch.
            expected: how it would be tuned now.
            wait: whether to wait for another process that tunes the key.
            force: whether to tune although a record is valid.
            on_wait: called with "host:process" of the owner, once, before waiting for it.
        """
        wait_s = self._wait_s if wait else 0.0
        request = LeaseRequest(key, expected, force, on_wait)
        # Kept from call to call: a process that never waits still notices that an owner has ended.
        watch = self._watches.setdefault(request.name, Watch(self._pace.stale_s))
        return acquire_lease(self._call, request, wait_s=wait_s, pace=self._pace, watch=watch)

    def close(self) -> None:
        """Disconnect from the database; the next call opens it again."""
        with self._lock:
            store, self._store = self._store, None
        if store is not None:
            store.close()

    def _call(self, work: Callable[[Store], _T], default: _T) -> _T:
        """Run work on the store; turn its errors into warnings and return `default` instead."""
        try:
            store = self._open()
            return default if store is None else work(store)
        except StoreError as error:
            self._give_up(f"{error}; going on without the store")
        except InputError as error:
            if self._store is None:
                self._give_up(f"{error}; going on without the store")
            else:
                self._warn(f"{error}; it is not kept")
        return default

    def _open(self) -> Store | None:
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
            self._warn(message)

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, StoreWarning, stacklevel=user_stacklevel())


def open_user_store(settings: Settings) -> SafeStore:
    """Return the user's store: one object per process and place, so that it warns once."""
    return _safe_store(settings.store_where, settings.wait_s)


@cache
def _safe_store(where: str, wait_s: float) -> SafeStore:
    return SafeStore(where, wait_s=wait_s)
