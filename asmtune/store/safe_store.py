"""`SafeStore`: the user's store for launches and tuning, whose errors become warnings.

Use:

    store = open_user_store(settings)
    found = find_tuned(key, expected, store)
    if found.outcome == "hit": ...               # use found.record
    with store.lease(key, expected) as lease:    # waits while another process tunes the key
        if lease.record is not None: ...         # use it: another process has tuned
        elif not lease.mine: ...                 # another process still tunes: use the fallback
        else: record = lease.finish(tune())      # use what it returns
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cache, partial, wraps
from pathlib import Path
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar

from asmtune.base.errors import InputError, StoreError
from asmtune.base.settings import Settings
from asmtune.base.text import user_stacklevel
from asmtune.base.trust import is_news, trusted_file
from asmtune.core.records.tuned import Provenance, TuneKey
from asmtune.store import places
from asmtune.store.database import Store
from asmtune.store.lease import (
    Claim,
    LeaseIntervals,
    TuningLease,
    Watch,
    acquire_lease,
)
from asmtune.store.lookup import StoreLookup, StoreWarning
from asmtune.store.places import translated
from asmtune.store.sqlite_file import BESIDE, OwnThreadError, store_exists

_T = TypeVar("_T")
_P = ParamSpec("_P")

PATIENCE_S: Final = 10.0
"""Seconds that one call waits for a lock. Writers hold SQLite's for some 10 ms each, on a slow
disk, and are not served in turn; a process that holds it for longer must not delay a launch."""

RETRY_S: Final = 60.0
"""Seconds after which a store that has failed is tried again. A disk is freed and a lock released
within minutes, and a store that never comes back costs a try of at most `PATIENCE_S` in each."""

_Access = Literal["reads", "writes"]


def _guarded(
    operation: Callable[Concatenate[Store, _P], _T],
    default: Callable[[], _T],
    access: _Access = "reads",
) -> Callable[Concatenate[SafeStore, _P], _T]:
    """Make a method of `SafeStore` of one of `Store`; `default` makes its result on failure."""

    @wraps(operation)
    def method(self: SafeStore, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._call(lambda store: operation(store, *args, **kwargs), default(), access)

    return method


class SafeStore:
    """A store that never raises; opened when first used.

    Each error gives one `StoreWarning`. Then nothing is saved for `RETRY_S`, and nothing is found
    either if the store could not be read: each try could wait as long as the first. A full disk,
    or a store that may only be read, is still read. Where another thread of this process is in the
    way for too long, that call alone does nothing. No call waits for a lock for longer than
    `patience_s`, or for a server that is down for longer than 5 s, and thrice that where the
    store has to be opened and made.

    Methods that `Store` has too do the same here; where the store cannot be used, they find
    nothing and save nothing.

    Args:
        where: path or URL, as for `Store.open`.
        wait_s: seconds that `lease` waits for another process's record.
        patience_s: seconds that one call waits for a lock.
        pace: intervals of leases.
        is_own: whether it is a file of the user's alone, so that one that others may write is not
            used. A store that the user names may be shared: its rows are data.
    """

    def __init__(
        self,
        where: str,
        *,
        wait_s: float = 600.0,
        patience_s: float = PATIENCE_S,
        pace: LeaseIntervals | None = None,
        is_own: bool = False,
    ) -> None:
        self._is_own = is_own
        self._where = where
        self._wait_s = wait_s
        self._patience_s = patience_s
        self._pace = pace or LeaseIntervals()
        self._store: Store | None = None
        self._off_until: dict[_Access, float] = {}
        self._warned: set[str] = set()
        self._watches: dict[str, Watch] = {}
        # No lock: a child that is forked while another thread holds it would wait for ever. Two
        # threads may open the store at once, which has nothing open between two calls.

    @property
    def working(self) -> bool:
        """Tell whether the store is read and written: it has not failed in the last `RETRY_S`."""
        return not self._is_off("writes")

    lookup = _guarded(Store.lookup, lambda: StoreLookup("miss", detail="the store cannot be used"))
    records = _guarded(Store.records, list)
    devices = _guarded(Store.devices, list)
    near = _guarded(Store.near, list)
    save = _guarded(Store.save, lambda: None, "writes")
    find_prediction = _guarded(Store.find_prediction, lambda: None)
    save_prediction = _guarded(Store.save_prediction, lambda: None, "writes")

    def lease(
        self,
        key: TuneKey,
        expected: Provenance,
        *,
        force: bool = False,
        on_wait: Callable[[str], None] | None = None,
    ) -> TuningLease:
        """Take the lease of a key for tuning, or wait for the process that holds it.

        A process must release a key before it asks for it again: it would wait for itself.

        Args:
            key: key of the launch.
            expected: how it would be tuned now.
            force: whether to tune although a record is valid.
            on_wait: called with "host:process" of the owner, once, before waiting for it.
        """
        claim = Claim(key, expected, force)
        # Kept from call to call: a process that never waits still notices that an owner has ended.
        watch = self._watches.setdefault(claim.name, Watch(self._pace.stale_s))
        guarded = partial(self._call, access="writes")
        return acquire_lease(
            guarded, claim, wait_s=self._wait_s, pace=self._pace, watch=watch, on_wait=on_wait
        )

    def _call(self, work: Callable[[Store], _T], default: _T, access: _Access = "reads") -> _T:
        """Run work on the store; turn its errors into warnings and return `default` instead."""
        if self._is_off(access):
            return default
        failed: _Access = "reads"
        try:
            store = self._open()
            failed = access
            return work(store)
        except OwnThreadError as error:
            self._warn(f"{error}; this was not done")  # the store is sound, and used by the next
        except StoreError as error:
            self._give_up(error, failed)
        except InputError as error:
            if self._store is None:
                self._give_up(error, failed)
            else:
                self._warn(f"{error}; it is not kept")
        return default

    def _open(self) -> Store:
        if self._is_own:
            with translated(self._where):
                trusted_file(Path(self._where), *BESIDE)
        store = self._store
        if store is None:
            store = Store.open(self._where, on_corrupt="set_aside", patience_s=self._patience_s)
            self._store = store
        return store

    def _is_off(self, access: _Access) -> bool:
        """Tell whether a failure is recent; one that cannot be read is not written either."""
        kinds: tuple[_Access, ...] = ("reads",) if access == "reads" else ("reads", "writes")
        now = time.monotonic()
        return any(now < self._off_until.get(kind, now) for kind in kinds)

    def _give_up(self, error: Exception, access: _Access) -> None:
        """Warn, unless another thread has just given up, and let no call through for a while."""
        again = self._is_off(access)
        self._off_until[access] = time.monotonic() + RETRY_S
        if not again and ("://" in self._where or is_news(Path(self._where))):
            what = "the store" if access == "reads" else "saving"
            self._warn(f"{error}; going on without {what}")

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, StoreWarning, stacklevel=user_stacklevel())


def open_user_store(settings: Settings) -> SafeStore:
    """Return the user's store: one object per process and place, so that it warns once."""
    return _safe_store(settings.store_where, settings.wait_s, not settings.store_url)


def existing_store(settings: Settings) -> SafeStore | None:
    """Return the user's store if there is one: looking makes no file.

    Raises:
        InputError: its URL cannot be read.
        StoreError: its folder cannot be looked into.
    """
    home = places.parse(settings.store_where)
    if isinstance(home, Path) and not store_exists(home):
        return None
    return open_user_store(settings)


@cache
def _safe_store(where: str, wait_s: float, is_own: bool) -> SafeStore:
    return SafeStore(where, wait_s=wait_s, is_own=is_own)
