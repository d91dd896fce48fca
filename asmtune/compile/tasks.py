"""Tasks on their way through joblib: numbered, remembered, each once or one on every worker."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, Generic, TypeVar
from uuid import uuid4

from asmtune.base.errors import AsmtuneError

T = TypeVar("T")
R = TypeVar("R")

_PATIENCE_S: Final = 10.0
"""A worker starts in 1 s; one that never does is not waited for."""


class WorkerRun:
    """One use of the workers, until it is stopped.

    Attributes:
        stopped: whether nobody waits for it any more.
        flag: a file that tells those workers so who see this machine's temporary folder.
    """

    def __init__(self) -> None:
        self.stopped = False
        self.flag = Path(tempfile.gettempdir()) / f"asmtune-{uuid4().hex}.stop"

    def stop(self) -> None:
        """No task is begun any more, and those that run end soon."""
        self.stopped = True
        with contextlib.suppress(OSError):  # of a full disk: then they run to their end
            self.flag.touch(mode=0o600)

    def close(self) -> None:
        """Takes the flag away; when no task runs."""
        with contextlib.suppress(OSError):
            self.flag.unlink(missing_ok=True)


@dataclass(frozen=True)
class Together:
    """Work that every worker does once: whoever is done waits until the last has begun.

    Attributes:
        folder: where each leaves a file when it begins.
        jobs: how many there are.
        work: what to do.
    """

    folder: Path
    jobs: int
    work: Callable[[], None]

    def __call__(self, number: int) -> None:
        """One worker's turn."""
        end = time.monotonic() + _PATIENCE_S
        (self.folder / str(number)).touch()
        self.work()
        while len(list(self.folder.iterdir())) < self.jobs and time.monotonic() < end:
            time.sleep(0.01)


class Numbered(Generic[T, R]):
    """Work on numbered tasks; the results carry the numbers."""

    def __init__(self, work: Callable[[T], R]) -> None:
        self._work = work

    def __call__(self, task: tuple[int, T]) -> tuple[int, R]:
        """One task."""
        number, content = task
        return number, self._work(content)


class Source(Generic[T]):
    """Numbers tasks, and knows which are out; joblib draws in several threads.

    Attributes:
        out: tasks without a result, by number.
        error: what ended the tasks early, and those that were out; joblib would kill its
            workers, or drop the error if no task is out.
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
