"""joblib's pools of workers on this machine: how they start and end, and their trackers.

They leave the process that uses them as it was: its variables, its start method and its Ctrl-C.
"""

from __future__ import annotations

import multiprocessing.resource_tracker
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import joblib
from joblib import Parallel
from joblib._parallel_backends import LokyBackend, MultiprocessingBackend
from joblib.externals.loky import reusable_executor
from joblib.externals.loky.backend import resource_tracker

from asmtune.base.child import die_with_parent

_SAFE_PATH: Final = "PYTHONSAFEPATH"


class _EndsWithParent:
    """Has the workers of one of joblib's backends end with this process."""

    def configure(self, *arguments: Any, **options: Any) -> Any:
        """Start the pool."""
        own = {**getattr(self, "backend_kwargs", {}), **options}
        users = own.get("initializer"), own.get("initargs", ())
        options |= {"initializer": _begin_worker, "initargs": (os.getpid(), *users)}
        return super().configure(*arguments, **options)  # type: ignore[misc]


class _ForkedWorkers(_EndsWithParent, MultiprocessingBackend):  # type: ignore[misc]
    pass


class _LokyWorkers(_EndsWithParent, LokyBackend):  # type: ignore[misc]
    """Has workers start with a safe path, which keeps Python off the working directory.

    A worker has this process's path afterwards.
    """

    def _prepare_worker_env(self, n_jobs: int) -> dict[str, str]:
        return {**super()._prepare_worker_env(n_jobs), _SAFE_PATH: "1"}

    def configure(self, *arguments: Any, **options: Any) -> Any:
        """Start joblib's two trackers, which serve all workers, then the pool."""
        start_trackers()
        return super().configure(*arguments, **options)


_lock: Final = threading.Lock()

# A process that is forked meanwhile would wait for ever for it, or for locks of the trackers.
os.register_at_fork(
    before=_lock.acquire,
    after_in_parent=_lock.release,
    after_in_child=_lock.release,
)


def new_parallel(*arguments: Any, **options: Any) -> Any:
    """Make a `Parallel` without fixing the start method of `multiprocessing`.

    joblib asks for the default context, after which a program cannot choose another one.
    """
    with _lock:
        before = joblib.parallel.DEFAULT_MP_CONTEXT
        chosen = multiprocessing.get_start_method(allow_none=True)
        method = chosen or multiprocessing.get_all_start_methods()[0]
        joblib.parallel.DEFAULT_MP_CONTEXT = before or multiprocessing.get_context(method)
        try:
            return Parallel(*arguments, **options)
        finally:
            joblib.parallel.DEFAULT_MP_CONTEXT = before


OWN_BACKENDS: Final = {LokyBackend: _LokyWorkers, MultiprocessingBackend: _ForkedWorkers}


_INTERRUPT: Final = frozenset({signal.SIGINT})


@contextmanager
def quiet_starts() -> Iterator[None]:
    """Have workers that this thread starts sleep through Ctrl-C until they can end well.

    The terminal sends it to them too, and each would print where its imports were.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker(
    parent: int, initializer: Callable[..., None] | None, arguments: tuple[Any, ...]
) -> None:
    die_with_parent(parent)
    if _INTERRUPT & signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)
        signal.signal(signal.SIGINT, handler)
    if initializer is not None:
        initializer(*arguments)


_tracked: Final[set[int]] = set()
"""Processes, of which this is one, that have started joblib's trackers."""


def start_trackers() -> None:
    """Start joblib's two trackers with a safe path, once for each process.

    They get this process's own variables: nothing else can be said to them. So does what another
    thread starts at that moment.
    """
    with _lock:
        if os.getpid() in _tracked:
            return
        before = os.environ.get(_SAFE_PATH)
        os.environ[_SAFE_PATH] = "1"
        try:
            multiprocessing.resource_tracker.ensure_running()
            resource_tracker.ensure_running()
            _tracked.add(os.getpid())
        finally:
            if before is None:
                del os.environ[_SAFE_PATH]
            else:
                os.environ[_SAFE_PATH] = before


_pools_of_parents: Final[list[Any]] = []


def _forget_pool() -> None:
    """Have joblib start a new pool in a forked process: the thread of the other one is gone."""
    # Its end would wake the parent's thread by their common pipe.
    _pools_of_parents.append(reusable_executor._executor)
    reusable_executor._executor = None
    reusable_executor._executor_lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_pool)


def kill_workers() -> None:
    """Kill joblib's workers on this machine; uses of other threads start new ones."""
    executor = reusable_executor._executor
    if executor is not None:
        executor.shutdown(wait=True, kill_workers=True)
