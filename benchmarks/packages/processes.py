"""Programs in processes of their own, with their own caches, driven by requests."""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from asmtune.base.child import Child, ChildGoneError
from benchmarks.packages.catalogue import Program, Way

_CACHES: Final = (
    "ASMTUNE_CACHE_DIR",
    "FLAGGEMS_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "XDG_CACHE_HOME",
)
_EXIT_S: Final = 30.0
OVER: Final = "not started: the time of all together was over"


@dataclass(frozen=True)
class Place:
    """The folders in which a program runs in one way.

    Attributes:
        caches: folder of the caches that the next process reads.
        outputs: folder into which the program writes.
        limit_s: seconds of start and first calls after which a process is killed; also those of
            any later request.
        end: time by `time.monotonic` after which no process starts or lives.
        arguments: further arguments of the program, as `--device cpu --small`.
    """

    caches: Path
    outputs: Path
    limit_s: float
    end: float = math.inf
    arguments: tuple[str, ...] = ()


class ProcessEndedError(Exception):
    """A process ended, was killed, or could not start; the text says why."""


class Session:
    """A live process of a program, which does one request at a time.

    Attributes:
        seconds: wall clock of its start and of its requests, without its waits between them.

    Raises:
        ProcessEndedError: the time of all together is over.
    """

    def __init__(self, program: Program, way: Way, place: Place) -> None:
        if place.end <= time.monotonic():
            raise ProcessEndedError(OVER)
        self._place, self.seconds, self._spent_s = place, 0.0, 0.0
        # In a folder where nothing of this repository hides a package's own.
        command = ["env", "-C", str(place.outputs), sys.executable, *way.command]
        command += [str(program.path), str(place.outputs), *place.arguments]
        self._child = Child(command, _environment(place))

    def first(self, operation: str) -> dict[str, Any]:
        """Run an operation's first call, within what is left of the process's limit."""
        answer = self.ask("first", self._place.limit_s - self._spent_s, name=operation)
        self._spent_s = self.seconds
        return answer

    def ask(self, do: str, limit_s: float | None = None, **arguments: Any) -> dict[str, Any]:
        """Send a request to the program's stopwatch, and wait for the answer.

        Raises:
            ProcessEndedError: the process ended, or was killed at its limit.
        """
        limit_s = self._place.limit_s if limit_s is None else limit_s
        start = time.monotonic()
        left_s = max(0.0, self._place.end - start)
        try:
            self._child.send({"do": do, **arguments})
            return self._child.receive(min(limit_s, left_s))
        except ChildGoneError:
            raise ProcessEndedError(str(self._child.kill(_EXIT_S))) from None
        except TimeoutError:
            self._child.kill()
            limit = f"its limit of {self._place.limit_s:.4g} s"
            limit = limit if limit_s < left_s else "the limit of all together"
            raise ProcessEndedError(f"killed after {limit}") from None
        finally:
            self.seconds += time.monotonic() - start

    def close(self) -> None:
        """End the process, as its program ends by itself."""
        start = time.monotonic()
        if self._child.is_running:
            self._child.send({"do": "end"})
            self._child.kill(_EXIT_S)
        self.seconds += time.monotonic() - start


class Running:
    """A program in one way: its live process, and what its operations have so far.

    An operation that ends its process, or lasts until the limit, has that as its error. The
    operations behind it run in a process of their own; those before it keep what they have.

    Attributes:
        session: the live process, if any.
        rows: times, or an error, by operation.
    """

    def __init__(self, program: Program, way: Way, place: Place) -> None:
        place.outputs.mkdir(parents=True)
        self._program, self._way, self._place = program, way, place
        self._seconds = 0.0
        self.session: Session | None = None
        self.rows: dict[str, dict[str, Any]] = {}
        self._alive: list[str] = []

    def first_call(self, operation: str) -> None:
        """Run the first call of an operation, in the live process or in a new one."""
        try:
            if self.session is None:
                self.session = Session(self._program, self._way, self._place)
            self.rows[operation] = self.session.first(operation)
            self._alive.append(operation)
        except ProcessEndedError as error:
            self.rows[operation] = {"error": str(error)}
            self._end()

    def has(self, operation: str) -> bool:
        """Say if an operation's inputs are alive, so that it can be timed further."""
        return operation in self._alive

    def save(self, operation: str) -> None:
        """Save an operation's outputs; a process that ends here is the operation's error."""
        if self.session is not None and self.has(operation):
            try:
                self.session.ask("save", name=operation)
            except ProcessEndedError as error:
                self.failed(operation, str(error))

    def failed(self, operation: str, why: str) -> None:
        """Note why an operation has no more results, and end the process."""
        self.rows[operation]["later_error"] = why
        self._end()

    def close(self) -> dict[str, Any]:
        """End the process; return seconds and operations."""
        self._end()
        return {"seconds": round(self._seconds, 2), "operations": self.rows}

    def _end(self) -> None:
        if self.session is not None:
            self.session.close()
            self._seconds += self.session.seconds
            self.session, self._alive = None, []


def _environment(place: Place) -> dict[str, str]:
    caches = {name: str(place.caches / name.lower()) for name in _CACHES}
    return {**os.environ, **caches, "PYTHONUNBUFFERED": "1"}
