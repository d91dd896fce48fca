"""Runs tasks in threads, of which each may be stopped."""

from __future__ import annotations

import copy
import functools
import os
import queue
import threading
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, TypeVar

from asmtune.compile.sandbox import JobCancelledError
from asmtune.triton_api.user_state import carried

T = TypeVar("T")
R = TypeVar("R")

Stop = threading.Event
"""Set when nobody waits any more for a task."""

_MOST_PER_CPU: Final = 4


class Workers:
    """Runs tasks.

    Args:
        jobs: tasks at once.

    Attributes:
        jobs: how many tasks run at once: no more than a few times the CPUs.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = _limited(jobs)
        self._stops: set[Stop] = set()

    def unordered(
        self, work: Callable[[T, Stop], R], tasks: Iterator[T]
    ) -> Generator[R, None, None]:
        """Yield results as they come; a task is drawn when a worker is free.

        Closing it ends the running tasks.

        Args:
            work: gets a task, and what is set when nobody waits.
            tasks: drawn in the workers' threads, one at a time.

        Raises:
            Exception: whatever `work` or `tasks` raises.
        """
        stop, begin, turn = Stop(), carried(), threading.Lock()
        results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stops.add(stop)

        def draw() -> Any:
            with turn:
                return _NONE if stop.is_set() else next(tasks, _NONE)

        def run() -> None:
            with _Reported(results, stop):
                begin()
                while (task := draw()) is not _NONE:
                    results.put(work(task, stop))

        threads = [
            threading.Thread(target=run, name=f"asmtune-compile-{number}", daemon=True)
            for number in range(self.jobs)
        ]
        try:
            for thread in threads:
                thread.start()
            yield from _collected(results, len(threads), stop)
        finally:
            stop.set()
            self._stops.discard(stop)
            for thread in threads:
                thread.join()

    def apart(self) -> Workers:
        """Return the same workers for another purpose: `stop` of one leaves the other's alone."""
        other = copy.copy(self)
        other._stops = set()
        return other

    def stop(self) -> None:
        """End the iterators of other threads; uses that begin later run."""
        for stop in list(self._stops):
            stop.set()


_NONE: Final = object()
"""Stands for a task where none is left."""


class _Ended:
    """Says that a thread has ended, and what it has raised."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _Reported:
    """Reports the end of a thread to who collects, and what it has raised."""

    def __init__(self, results: queue.SimpleQueue[Any], stop: Stop) -> None:
        self._results, self._stop = results, stop

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Put what was raised among the results, but for the word that nobody waits."""
        if isinstance(error, JobCancelledError):
            error = None
        elif error is not None:
            self._stop.set()
        self._results.put(_Ended(error))
        return True


def _collected(results: queue.SimpleQueue[Any], threads: int, stop: Stop) -> Iterator[Any]:
    """Yield results until all threads have ended; raise what one has raised."""
    error: BaseException | None = None
    while threads:
        result = results.get()
        if isinstance(result, _Ended):
            threads -= 1
            error = error or result.error
        elif not stop.is_set():
            yield result
    if error is not None:
        raise error


def _limited(jobs: int) -> int:
    """Limit how many compile at once on this machine, and say so."""
    cpus = len(os.sched_getaffinity(0))
    most = max(8, _MOST_PER_CPU * cpus)
    if jobs > most:
        _warn_of_limit(jobs, most, cpus)
    return min(jobs, most)


@functools.cache
def _warn_of_limit(jobs: int, most: int, cpus: int) -> None:
    warnings.warn(
        f"{jobs} compiles at once are asked for (ASMTUNE_JOBS): {most} run, "
        f"since this process has {cpus} CPUs",
        stacklevel=4,
    )
