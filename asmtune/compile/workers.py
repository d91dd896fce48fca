"""Runs tasks in threads, each with a child process, or where `joblib.parallel_config` says."""

from __future__ import annotations

import copy
import functools
import os
import queue
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Any, Final, TypeVar, cast

from asmtune.base.errors import AsmtuneError
from asmtune.compile.sandbox import JobCancelledError
from asmtune.triton_api.user_state import carried

T = TypeVar("T")
R = TypeVar("R")

Stop = threading.Event
"""Set when nobody waits any more for a task."""

_LOCAL: Final = {"LokyBackend", "MultiprocessingBackend", "ThreadingBackend", "SequentialBackend"}
"""Classes of joblib's backends on this machine: of these only `n_jobs` counts here."""

_MOST_PER_CPU: Final = 4
_WAVE: Final = 4
"""Tasks per worker in one call, for backends that return all results of a call at once."""


class Workers:
    """Runs tasks; joblib's settings are those of the thread that makes it.

    Args:
        jobs: tasks at once on this machine if `joblib.parallel_config` gives no `n_jobs`. A
            cluster is used with all its workers.

    Attributes:
        is_local: whether the tasks run on this machine.
        jobs: how many tasks run at once.
    """

    def __init__(self, jobs: int) -> None:
        self._backend, n_jobs = _joblib_backend()
        self.is_local = self._backend is None or type(self._backend).__name__ in _LOCAL
        if n_jobs is None:
            n_jobs = jobs if self.is_local else -1
        if self._backend is not None:
            n_jobs = int(self._backend.effective_n_jobs(n_jobs))
        self.jobs = _limited(n_jobs) if self.is_local else n_jobs
        self._stops: set[Stop] = set()

    def unordered(
        self, work: Callable[[T, Stop | None], R], tasks: Iterator[T]
    ) -> Generator[R, None, None]:
        """Yield results as they come; draw a task when a worker is about to be free.

        Closing it ends the running tasks, except those that a cluster has begun.

        Args:
            work: a function of a module; gets a task, and what is set when nobody waits.
            tasks: drawn in another thread.

        Raises:
            Exception: whatever `work` or `tasks` raises.
        """
        stop = Stop()
        self._stops.add(stop)
        try:
            yield from (self._in_threads if self.is_local else self._afar)(work, tasks, stop)
        finally:
            stop.set()
            self._stops.discard(stop)

    def apart(self) -> Workers:
        """Return the same workers for another purpose: `stop` of one leaves the other's alone."""
        other = copy.copy(self)
        other._stops = set()
        return other

    def stop(self) -> None:
        """End the iterators of other threads; uses that begin later run."""
        for stop in list(self._stops):
            stop.set()

    def _in_threads(
        self, work: Callable[[T, Stop | None], R], tasks: Iterator[T], stop: Stop
    ) -> Iterator[R]:
        results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        drawn = _Drawn(tasks, stop, self.jobs)
        begin = carried()

        def run(step: Callable[[], None]) -> None:
            with _Reported(results, stop):
                begin()
                step()

        def do_tasks() -> None:
            for task in drawn:
                results.put(work(task, stop))

        steps = [drawn.draw, *[do_tasks] * self.jobs]
        threads = [
            threading.Thread(target=run, args=(step,), name=f"asmtune-compile-{n}", daemon=True)
            for n, step in enumerate(steps)
        ]
        try:
            for thread in threads:
                thread.start()
            yield from _collected(results, len(threads), stop)
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _afar(
        self, work: Callable[[T, Stop | None], R], tasks: Iterator[T], stop: Stop
    ) -> Iterator[R]:
        from joblib import delayed

        failed: list[AsmtuneError] = []

        def calls() -> Iterator[Any]:
            # joblib would end its workers for an error, or drop it if no task is out.
            try:
                for task in tasks:
                    if stop.is_set():
                        return
                    yield delayed(work)(task, None)
            except AsmtuneError as error:
                failed.append(error)

        for result in self._results(calls()):
            if stop.is_set():
                break
            yield result
        if failed:
            raise failed[0]

    def _results(self, calls: Iterator[Any]) -> Iterator[Any]:
        if not self._gives_generators:
            with self._parallel("list") as parallel:
                while wave := list(islice(calls, _WAVE * self.jobs)):
                    yield from parallel(wave)
            return
        results = self._parallel("generator_unordered")(calls)
        try:
            yield from results
        finally:
            # joblib warns that results are not used.
            with warnings.catch_warnings(action="ignore", category=UserWarning):
                results.close()

    @property
    def _gives_generators(self) -> bool:
        return bool(getattr(self._backend, "supports_return_generator", False))

    def _parallel(self, return_as: str) -> Any:
        from joblib import Parallel

        # A cluster reports results in the thread that talks to it, which must not make tasks: all
        # are sent from this thread.
        how = {"return_as": return_as, "batch_size": 1, "pre_dispatch": "all"}
        return Parallel(-1, backend=self._backend, **how)


class _Raised:
    """Holds what a thread has raised."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Reported:
    """Reports the end of a thread to who collects, and what it has raised."""

    def __init__(self, results: queue.SimpleQueue[Any], stop: Stop) -> None:
        self._results, self._stop = results, stop

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Put what was raised among the results, but for the word that nobody waits."""
        if error is not None and not isinstance(error, JobCancelledError):
            self._stop.set()
            self._results.put(_Raised(error))
        self._results.put(_ENDED)
        return True


_ENDED: Final = object()


def _collected(results: queue.SimpleQueue[Any], threads: int, stop: Stop) -> Iterator[Any]:
    """Yield results until all threads have ended; raise what one has raised."""
    error: BaseException | None = None
    while threads:
        result = results.get()
        if result is _ENDED:
            threads -= 1
        elif isinstance(result, _Raised):
            error = error or result.error
        elif not stop.is_set():
            yield result
    if error is not None:
        raise error


class _Drawn(Iterator[T]):
    """Tasks that one thread draws, some ahead of those that take them: each may take 15 ms."""

    def __init__(self, tasks: Iterator[T], stop: Stop, jobs: int) -> None:
        self._tasks, self._stop, self._jobs = tasks, stop, jobs
        self._ready: queue.Queue[Any] = queue.Queue(jobs)

    def draw(self) -> None:
        """Draw all tasks, and let those that take them end."""
        try:
            for task in self._tasks:
                if not self._put(task):
                    return
        finally:
            for _ in range(self._jobs):
                self._put(_ENDED)

    def _put(self, task: Any) -> bool:
        while not self._stop.is_set():
            try:
                self._ready.put(task, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def __next__(self) -> T:
        while not self._stop.is_set():
            try:
                task = self._ready.get(timeout=0.1)
            except queue.Empty:
                continue
            if task is _ENDED:
                break
            return cast("T", task)
        raise StopIteration


def _joblib_backend() -> tuple[Any, int | None]:
    """Return the backend and `n_jobs` that joblib's settings give this thread; None without any."""
    if "joblib.parallel" not in sys.modules:
        return None, None
    from joblib.parallel import get_active_backend

    backend, n_jobs = get_active_backend()
    return backend, n_jobs


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
        f"{jobs} compiles at once are asked for (ASMTUNE_JOBS, or joblib's n_jobs): {most} run, "
        f"since this process has {cpus} CPUs",
        stacklevel=4,
    )
