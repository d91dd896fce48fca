"""Times the rows of a bench run, in several processes one after another.

Each process times every row once. `Processes` starts and ends them, `Collected` gathers what they
report and makes the `BenchRun` of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from asmtune.base.child import Child, ChildGoneError, module_command
from asmtune.base.errors import MeasureError
from asmtune.core.kernel_module import kernel_names
from asmtune.report.cells import words
from asmtune.store.trace.reader import decoded
from asmtune.workshop.regression.plan import row_to_json
from asmtune.workshop.regression.run import (
    BenchPlan,
    BenchRow,
    BenchRun,
    Environment,
    LaunchLoad,
    Process,
    TimedSubject,
    UntimedSubject,
    timing_words,
)


def _path(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the path that modules of the user's are imported by, if there are any."""
    shipped = kernel_names()
    is_user_code = any(row["reference"] not in shipped for row in rows.values())
    return {"path": sys.path if is_user_code else []}


COMMAND: Final = module_command("asmtune.workshop.regression.process_main")

PATIENCE_S: Final = 180.0
"""For one message: a context, a compile of 30 s at most, tensors and samples; importing PyTorch
takes 2 s, and a minute on a cold network disk."""


@dataclass
class Collected:
    """Results of the processes so far.

    Attributes:
        rows: by number; a row that fails in any process is left out of the run.
        samples: microseconds of each row, one tuple a process.
        loads: operations and bytes of a launch of each row.
        failures: reason in one line, by the number of the row.
        environment: where the processes run; None until the first one says so.
        processes: date and clocks of those that have ended.
    """

    rows: dict[str, BenchRow]
    samples: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)
    loads: dict[str, LaunchLoad] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    environment: Environment | None = None
    processes: list[Process] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Sequence[BenchRow]) -> Collected:
        """Start a collection without results."""
        return cls({str(number): row for number, row in enumerate(rows)})

    @property
    def left(self) -> list[str]:
        """List the numbers of the rows that have not failed."""
        return [number for number in self.rows if number not in self.failures]

    def run(self, label: str, missed: Sequence[UntimedSubject]) -> BenchRun:
        """Make the record of the run; for `missed` shapes no config is stored.

        Raises:
            MeasureError: no row could be timed.
        """
        timed = [
            TimedSubject(
                row.subject,
                row.config,
                row.layer,
                row.remark,
                tuple(self.samples[number]),
                self.loads.get(number),
            )
            for number, row in self.rows.items()
            if number in self.left
        ]
        if not timed or self.environment is None:
            first = next(iter(self.failures.values()), "there was nothing to time")
            raise MeasureError(f"no kernel could be timed: {first}")
        failed = [
            UntimedSubject(self.rows[number].subject, "failed", reason)
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

    It fills `collected`. After `patience_s` without a message a process counts as hung.
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
        """Time every row that has not failed once more, in a process of its own.

        A row that ends its process costs that row alone: another process times the rest. The
        seed is of the rows' order; if `another` process comes after, it imports meanwhile.

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
            plan = {**_path(rows), "rows": rows, "seed": seed}
            clocks = self._run_plan(child, plan, done)
            self._end(child)
        for number in collected.left:
            collected.samples.setdefault(number, []).append(done[number])
        collected.processes.append(Process(_now(), clocks or {}))

    def _run_plan(
        self, child: Child, plan: Mapping[str, Any], done: dict[str, tuple[float, ...]]
    ) -> Mapping[str, Any] | None:
        """Send a plan; return the clocks at its end, or None if a row ended the process."""
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
        """Store one message of a process; its last one, the clocks, is not for here."""
        if "refused" in message:
            raise MeasureError(message["refused"])
        if "environment" in message:
            values = message["environment"]
            self._collected.environment = decoded(Environment, values, "environment")
        if "failure" in message:
            self._collected.failures[message["row"]] = " ".join(message["failure"].split())
        elif "samples" in message:
            number = message["row"]
            done[number] = tuple(message["samples"])
            if "load" in message:
                self._collected.loads[number] = decoded(LaunchLoad, message["load"], "load")

    def _ready(self) -> Child:
        return self._open[0] if self._open else self._start()

    def _start(self) -> Child:
        # One compile at a time, in the process itself: no workers.
        child = Child(self._command, {**os.environ, "ASMTUNE_JOBS": "1"})
        self._open.append(child)
        return child

    def _end(self, child: Child, patience_s: float = 0.0) -> str:
        with suppress(ValueError):
            self._open.remove(child)
            return str(child.kill(patience_s))
        return ""


def time_plan(plan: BenchPlan, processes: int, say: Callable[[str], object]) -> Collected:
    """Time the rows of a plan in a number of processes.

    `say` gets a line on each process and on each row that fails.

    Raises:
        MeasureError: a process cannot time anything, whatever the row.
    """
    collected = Collected.of(plan.rows)
    with Processes(collected) as runner:
        for number in range(1, processes + 1):
            runner.take(number, another=number < processes)
            say(f"process {number} of {processes}: {len(collected.left)} rows")
    for place, reason in collected.failures.items():
        subject = collected.rows[place].subject
        say(f"{subject.kernel} {words(subject.shape)}: {reason}")
    return collected


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
