"""Runs tasks where a surrounding `joblib.parallel_config` says, else on this machine."""

from __future__ import annotations

import atexit
import copy
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import closing, suppress
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast
from uuid import uuid4

from joblib import delayed
from joblib._parallel_backends import LokyBackend
from joblib.externals.loky.process_executor import ShutdownExecutorError
from joblib.parallel import get_active_backend

from asmtune.base.child import temporary_files
from asmtune.base.errors import AsmtuneError
from asmtune.compile.worker_pools import OWN_BACKENDS, new_parallel, quiet_starts, start_trackers

T = TypeVar("T")
R = TypeVar("R")

_LOCAL: Final = "joblib._parallel_backends"
_WAVE: Final = 4
"""Tasks per worker in one call, for backends that return all results of a call at once."""

_PATIENCE_S: Final = 10.0
"""Seconds to wait for all workers to start; one starts in 1 s."""


class WorkerRun:
    """Tracks one use of the workers, until it is stopped.

    Attributes:
        stopped: whether nobody waits for the results any more.
        flag: a file that exists once it is stopped, for workers that see this machine's temporary
            folder.
    """

    def __init__(self) -> None:
        self.stopped = False
        with temporary_files():
            self.flag = Path(tempfile.gettempdir()) / f"asmtune-{uuid4().hex}.stop"

    def stop(self) -> None:
        """Begin no further task; those that run end soon."""
        self.stopped = True
        with suppress(OSError):  # on a full disk tasks run to their end
            self.flag.touch(mode=0o600)

    def close(self) -> None:
        """Delete the flag, when no task runs any more."""
        with suppress(OSError):
            self.flag.unlink(missing_ok=True)


def _once_per_worker(folder: Path, jobs: int, work: Callable[[], None], number: int) -> None:
    """Run work on one of so many workers, and wait until all have begun.

    Each creates a file in the folder when it begins, so that no worker takes two turns.
    """
    end = time.monotonic() + _PATIENCE_S
    (folder / str(number)).touch()
    work()
    while len(list(folder.iterdir())) < jobs and time.monotonic() < end:
        time.sleep(0.01)


def _numbered(work: Callable[[T], R], task: tuple[int, T]) -> tuple[int, R]:
    number, content = task
    return number, work(content)


class TaskSource(Generic[T]):
    """Numbers tasks, and holds those without a result; joblib draws in several threads.

    Attributes:
        out: tasks without a result, by number.
        error: what ended the iterator of tasks early. It is kept here because joblib would kill
            its workers, or drop the error if no task is out.
    """

    def __init__(self, tasks: Iterator[T], run: WorkerRun) -> None:
        self._tasks, self._numbers, self._run = tasks, count(), run
        self._lock = threading.Lock()
        self.out: dict[int, T] = {}
        self.error: AsmtuneError | None = None

    def __iter__(self) -> Iterator[tuple[int, T]]:
        return self

    def __next__(self) -> tuple[int, T]:
        with self._lock:
            if self._run.stopped:
                raise StopIteration
            number = next(self._numbers)
            try:
                self.out[number] = next(self._tasks)
            except AsmtuneError as error:
                self.error = error
                self._run.stop()
                raise StopIteration from error
            return number, self.out[number]


class Workers:
    """Runs tasks by joblib; joblib's settings are those of the thread that makes it.

    Args:
        jobs: tasks at once on this machine if `joblib.parallel_config` gives no `n_jobs`. A
            cluster is used with all its workers.

    Attributes:
        is_local: whether joblib itself runs the tasks, on this machine.
    """

    def __init__(self, jobs: int) -> None:
        backend, n_jobs = get_active_backend()
        self._backend: Any = backend
        self.is_local = type(backend).__module__ == _LOCAL
        self._n_jobs = n_jobs if n_jobs is not None else jobs if self.is_local else -1
        self._runs: set[WorkerRun] = set()
        self._starting = threading.Lock()

    @property
    def jobs(self) -> int:
        """Return how many tasks run at once."""
        return int(self._backend.effective_n_jobs(self._n_jobs))

    def unordered(
        self, work: Callable[[T], R], tasks: Callable[[Path], Iterator[T]], lost: Callable[[T], R]
    ) -> Generator[R, None, None]:
        """Yield results as they come; draw a task when a worker is about to be free.

        Closing it ends the running tasks, except those that other machines have begun.

        Args:
            work: a function of a module.
            tasks: makes the tasks; called with the flag of `WorkerRun`, which tasks have to check.
            lost: gives the result of a task that killed its worker.
        """
        run = WorkerRun()
        self._runs.add(run)
        try:
            yield from self._survive(work, TaskSource(tasks(run.flag), run), lost, run)
        finally:
            self._runs.discard(run)
            if run.stopped:  # a task that is on its way to a worker has not seen it yet
                atexit.register(run.close)
            else:
                run.close()

    def prepare(self) -> None:
        """Start what changes this process's variables for a moment; then any thread may go on."""
        if isinstance(self._backend, LokyBackend):
            start_trackers()

    def each(self, work: Callable[[], None]) -> None:
        """Run something once on every worker of this machine, and wait."""
        if not self.is_local:
            return
        # A thread that stops the workers meanwhile does not need this. On a full disk they say so
        # when they are used.
        trouble = RuntimeError, OSError
        with (
            suppress(*trouble),
            self._starting,
            quiet_starts(),
            tempfile.TemporaryDirectory(prefix="asmtune-") as folder,
        ):
            jobs = self.jobs
            once = delayed(_once_per_worker)
            calls = (once(Path(folder), jobs, work, number) for number in range(jobs))
            self._parallel("list")(calls)

    def call(self, work: Callable[[T], R], argument: T) -> R | None:
        """Run something once on a worker of this machine, and wait.

        Returns None if a worker died meanwhile, and if there are none here. It is not tried again:
        what kills its worker would kill those of other threads once more.
        """
        if not self.is_local:
            return None
        with self._starting:  # each of them waits there for the last one
            pass
        try:
            (result,) = self._results(work, iter([argument]), WorkerRun())
        except RuntimeError as error:
            if not _has_ended(error):
                raise
            return None
        return cast("R", result)

    def apart(self) -> Workers:
        """Return the same workers for another purpose: `stop` of one leaves the other's alone."""
        other = copy.copy(self)
        other._runs = set()
        return other

    def stop(self) -> None:
        """End the iterators of other threads; uses that begin later run."""
        for run in list(self._runs):
            run.stop()

    def _survive(
        self, work: Callable[[T], R], source: TaskSource[T], lost: Callable[[T], R], run: WorkerRun
    ) -> Iterator[R]:
        """Go on after a worker died, running the tasks it may have died of one by one."""
        while not run.stopped:
            try:
                with closing(self._results(partial(_numbered, work), source, run)) as results:
                    for number, result in results:
                        if run.stopped:
                            break
                        source.out.pop(number)
                        yield result
            except RuntimeError as error:
                if run.stopped:
                    break
                if not _has_ended(error):
                    raise
            else:
                break
            yield from self._one_by_one(work, source, lost, run)
        if source.error is not None:
            raise source.error

    def _one_by_one(
        self, work: Callable[[T], R], source: TaskSource[T], lost: Callable[[T], R], run: WorkerRun
    ) -> Iterator[R]:
        """Run the tasks that were out when a worker died one by one, to see which one kills."""
        while source.out and not run.stopped:
            number, task = next(iter(source.out.items()))
            try:
                yield from self._results(work, iter([task]), run)
            except RuntimeError as error:
                if run.stopped or _is_shut_down(error):
                    continue
                if not isinstance(error, BrokenExecutor):
                    raise
                yield lost(task)
            del source.out[number]

    def _results(
        self, work: Callable[[Any], Any], tasks: Iterator[Any], run: WorkerRun
    ) -> Generator[Any, None, None]:
        call = delayed(work)
        if not self._gives_generators:
            with self._parallel("list") as parallel:
                while wave := list(islice(tasks, _WAVE * self.jobs)):
                    yield from parallel(call(task) for task in wave)
            return
        with temporary_files():  # joblib's locks and folder
            results = self._parallel("generator_unordered")(call(task) for task in tasks)
        try:
            for result in results:  # noqa: UP028 - would close them itself: see `_end`
                yield result
        except GeneratorExit:
            self._end(results, run)
            raise

    def _end(self, results: Generator[Any, None, None], run: WorkerRun) -> None:
        """End tasks that nobody waits for.

        On this machine the flag tells them to end. joblib would kill the workers, those of other
        threads' tasks as well, and the next ones would take 2 s to start.
        """
        run.stop()
        # Errors of these tasks no longer matter.
        with suppress(AsmtuneError, RuntimeError):
            if self.is_local:
                for _ in results:
                    pass
        # joblib warns that their results are not used.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            results.close()

    @property
    def _gives_generators(self) -> bool:
        kind = type(self._backend).__name__
        return kind == "SequentialBackend" or bool(self._backend.supports_return_generator)

    def _parallel(self, return_as: str) -> Any:
        # A backend object serves one `Parallel` at a time; a cluster's holds its client.
        backend = copy.copy(self._backend) if self.is_local else self._backend
        backend.__class__ = OWN_BACKENDS.get(type(backend), type(backend))
        # A cluster reports results in the thread that talks to it, which must not make tasks: all
        # are sent from this thread.
        first = "2 * n_jobs" if self.is_local else "all"
        return new_parallel(
            self._n_jobs, backend, return_as=return_as, batch_size=1, pre_dispatch=first
        )


def _has_ended(error: RuntimeError) -> bool:
    """Return whether an error says that a worker died or that the workers were shut down."""
    return isinstance(error, BrokenExecutor) or _is_shut_down(error)


def _is_shut_down(error: RuntimeError) -> bool:
    """Return whether the workers ended because another thread closed its iterator."""
    return isinstance(error.__context__, ShutdownExecutorError)
