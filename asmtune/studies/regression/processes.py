"""Times the rows of a bench run, in several processes one after another.

Each process times every row once. `Processes` starts and ends them, `Collected` gathers what they
report and makes the `BenchRun` of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from asmtune.base.errors import MeasureError
from asmtune.measure.bench.process import Child, ChildGoneError, Started
from asmtune.store.trace.json_codec import decoded
from asmtune.studies.regression.rows import BenchPlan, BenchRow, row_to_json
from asmtune.studies.regression.run import BenchRun, Environment, Missed, Process, TimedSubject
from asmtune.studies.regression.timing import timing_words

COMMAND: Final = (sys.executable, "-m", "asmtune.studies.regression.process_main")

PATIENCE_S: Final = 180.0
"""For one message: a context, a compile of 30 s at most, tensors and samples; importing PyTorch
takes 2 s, and a minute on a cold network disk."""


@dataclass
class Collected:
    """Results of the processes so far.

    Attributes:
        rows: by number; a row that fails in any process is left out of the run.
        samples: microseconds of each row, one tuple a process.
        failures: reason in one line, by the number of the row.
        environment: where the processes run; None until the first one says so.
        processes: date and clocks of those that have ended.
    """

    rows: dict[str, BenchRow]
    samples: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    environment: Environment | None = None
    processes: list[Process] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Sequence[BenchRow]) -> Collected:
        """Starts a collection without results."""
        return cls({str(number): row for number, row in enumerate(rows)})

    @property
    def left(self) -> list[str]:
        """Numbers of the rows that have not failed."""
        return [number for number in self.rows if number not in self.failures]

    def run(self, label: str, missed: Sequence[Missed]) -> BenchRun:
        """Makes the record of the run.

        Args:
            label: the user's own name for the run.
            missed: shapes that were not timed for want of a stored config.

        Raises:
            MeasureError: no row could be timed.
        """
        timed = [
            TimedSubject(
                row.subject, row.config, row.layer, row.remark, tuple(self.samples[number])
            )
            for number, row in self.rows.items()
            if number in self.left
        ]
        if not timed or self.environment is None:
            first = next(iter(self.failures.values()), "there was nothing to time")
            raise MeasureError(f"no kernel could be timed: {first}")
        failed = [
            Missed(self.rows[number].subject, "failed", reason)
            for number, reason in self.failures.items()
        ]
        return BenchRun(
            date=_now(),
            label=label,
            environment=self.environment,
            timing=timing_words(),
            processes=tuple(self.processes),
            rows=tuple(timed),
            missed=(*missed, *failed),
        )


class Processes:
    """Times rows, a process at a time, and starts the next one early; a context manager.

    Args:
        collected: filled with the results.
        command: starts a process; `COMMAND` by default.
        patience_s: seconds without a message after which a process counts as hung;
            `PATIENCE_S` by default.
    """

    def __init__(
        self,
        collected: Collected,
        command: Sequence[str] | None = None,
        patience_s: float | None = None,
    ) -> None:
        self._collected = collected
        self._command = command or COMMAND
        self._patience_s = patience_s or PATIENCE_S
        self._open: list[Child] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._end(self._open[0])

    def take(self, seed: int, *, another: bool) -> None:
        """Times every row that has not failed once more, in a process of its own.

        A row that ends its process costs that row alone: another process times the rest.

        Args:
            seed: of the order of the rows.
            another: whether one more process comes after, which then imports meanwhile.

        Raises:
            MeasureError: a process cannot time anything, whatever the row.
        """
        collected, done = self._collected, dict[str, tuple[float, ...]]()
        clocks: Mapping[str, Any] | None = None
        while clocks is None and (pending := [n for n in collected.left if n not in done]):
            child = self._ready()
            if another:
                self._start()
            rows = {number: row_to_json(collected.rows[number]) for number in pending}
            clocks = self._run_plan(child, {"rows": rows, "seed": seed}, done)
            self._end(child)
        for number in collected.left:
            collected.samples.setdefault(number, []).append(done[number])
        collected.processes.append(Process(_now(), clocks or {}))

    def _run_plan(
        self, child: Child, plan: Mapping[str, Any], done: dict[str, tuple[float, ...]]
    ) -> Mapping[str, Any] | None:
        """Sends a plan; returns the clocks at its end, or None if a row ended the process."""
        running, cause = "", ""
        try:
            child.send(plan)
            while True:
                message = child.receive(self._patience_s)
                running = message.get("running", running)
                if "clocks" in message:
                    clocks: Mapping[str, Any] = message["clocks"]
                    return clocks
                self._handle(message, done)
        except ChildGoneError:
            cause = self._end(child, 5.0)
        except TimeoutError:
            self._end(child)
            cause = f"gave no answer for {self._patience_s:g} s"
        if not running:
            raise MeasureError(f"the process that times {cause}")
        if running not in done:
            self._collected.failures.setdefault(running, f"its process {cause}")
        return None

    def _handle(self, message: Mapping[str, Any], done: dict[str, tuple[float, ...]]) -> None:
        """Stores one message of a process; its last one, the clocks, is not for here."""
        if "refused" in message:
            raise MeasureError(message["refused"])
        if "environment" in message:
            values = message["environment"]
            self._collected.environment = decoded(Environment, values, "environment")
        if "failure" in message:
            self._collected.failures[message["row"]] = " ".join(message["failure"].split())
        elif "samples" in message:
            done[message["row"]] = tuple(message["samples"])

    def _ready(self) -> Child:
        return self._open[0] if self._open else self._start()

    def _start(self) -> Child:
        # One compile at a time, in the process itself: no workers.
        child = Child(Started(self._command, {**os.environ, "ASMTUNE_JOBS": "1"}))
        self._open.append(child)
        return child

    def _end(self, child: Child, patience_s: float = 0.0) -> str:
        with suppress(ValueError):
            self._open.remove(child)
            return child.kill(patience_s)
        return ""


class BenchProgress:
    """Listens to a bench run; each method does nothing by default."""

    def planned(self, plan: BenchPlan) -> None:
        """Is called once, before anything is timed."""

    def process_ended(self, number: int, collected: Collected) -> None:
        """Is called after each process, with its number from 1 on."""

    def finished(self, collected: Collected) -> None:
        """Is called once, after the last process."""


def time_plan(plan: BenchPlan, processes: int, progress: BenchProgress) -> Collected:
    """Times the rows of a plan in a number of processes.

    Raises:
        MeasureError: a process cannot time anything, whatever the row.
    """
    collected = Collected.of(plan.rows)
    with Processes(collected) as runner:
        for number in range(1, processes + 1):
            runner.take(number, another=number < processes)
            progress.process_ended(number, collected)
    progress.finished(collected)
    return collected


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
