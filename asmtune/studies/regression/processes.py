"""Processes one after another, each of which times all rows once: the parts of a bench run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from asmtune.base.child import Child, ChildGoneError
from asmtune.base.errors import MeasureError
from asmtune.store.trace.json_codec import decoded
from asmtune.studies.regression.rows import BenchRow, wanted_to_json
from asmtune.studies.regression.run import BenchRun, Environment, Missed, Process, TimedSubject
from asmtune.studies.regression.timing import timing_words

COMMAND: Final = (sys.executable, "-m", "asmtune.studies.regression.process_main")

PATIENCE_S: Final = 180.0
"""For one message: a context, a compile of 30 s at most, tensors and samples; importing PyTorch
takes 2 s, and a minute on a cold network disk."""


@dataclass
class Collected:
    """What the processes have said.

    Attributes:
        rows: by number; those that fail are taken out, whatever others have timed of them.
        samples: of each row, by process.
        failures: of rows, in one line.
    """

    rows: dict[str, BenchRow]
    samples: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    environment: Environment | None = None
    processes: list[Process] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Sequence[BenchRow]) -> Collected:
        """Nothing yet."""
        return cls({str(number): row for number, row in enumerate(rows)})

    @property
    def left(self) -> list[str]:
        """Rows that can be timed, as far as is known."""
        return [number for number in self.rows if number not in self.failures]

    def run(self, label: str, missed: Sequence[Missed]) -> BenchRun:
        """The whole run.

        Raises:
            MeasureError: nothing could be timed.
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
    """Times rows, a process at a time, and keeps the next one ready; a context.

    Args:
        collected: filled.
        command: starts one; `COMMAND` by default.
        patience_s: seconds without a message after which one hangs; `PATIENCE_S` by default.
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
        """One more sample set of every row that is left.

        Args:
            seed: of the order of the rows.
            another: whether one more process comes after, which imports meanwhile.

        Raises:
            MeasureError: a process cannot be used, whatever the row.
        """
        collected, done = self._collected, dict[str, tuple[float, ...]]()
        clocks: Mapping[str, Any] | None = None
        while clocks is None and (pending := [n for n in collected.left if n not in done]):
            child = self._ready()
            if another:
                self._start()
            rows = {number: wanted_to_json(collected.rows[number]) for number in pending}
            clocks = self._asked(child, {"rows": rows, "seed": seed}, done)
            self._end(child)
        for number in collected.left:
            collected.samples.setdefault(number, []).append(done[number])
        collected.processes.append(Process(_now(), clocks or {}))

    def _asked(
        self, child: Child, plan: Mapping[str, Any], done: dict[str, tuple[float, ...]]
    ) -> Mapping[str, Any] | None:
        """The clocks at the end of a plan; None where a row has ended the process."""
        running, cause = "", ""
        try:
            child.send(plan)
            while True:
                message = child.receive(self._patience_s)
                running = message.get("running", running)
                if "clocks" in message:
                    clocks: Mapping[str, Any] = message["clocks"]
                    return clocks
                self._hear(message, done)
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

    def _hear(self, message: Mapping[str, Any], done: dict[str, tuple[float, ...]]) -> None:
        """One message of a process, but for its last."""
        if "refused" in message:
            raise MeasureError(message["refused"])
        if "environment" in message:
            found = message["environment"]
            self._collected.environment = decoded(Environment, found, "environment")
        if "failure" in message:
            self._collected.failures[message["row"]] = " ".join(message["failure"].split())
        elif "samples" in message:
            done[message["row"]] = tuple(message["samples"])

    def _ready(self) -> Child:
        return self._open[0] if self._open else self._start()

    def _start(self) -> Child:
        # Compiles are one at a time, here and now.
        child = Child(self._command, {**os.environ, "ASMTUNE_JOBS": "1"})
        self._open.append(child)
        return child

    def _end(self, child: Child, patience_s: float = 0.0) -> str:
        with suppress(ValueError):
            self._open.remove(child)
            return str(child.kill(patience_s))
        return ""


def bench(
    rows: Sequence[BenchRow], processes: int, told: Callable[[int, Collected], None]
) -> Collected:
    """Times rows in so many processes.

    Args:
        rows: at least one.
        processes: at least one.
        told: called after each, with its number from 1 on.

    Raises:
        MeasureError: a process cannot be used, whatever the row.
    """
    collected = Collected.of(rows)
    with Processes(collected) as parts:
        for number in range(1, processes + 1):
            parts.take(number, another=number < processes)
            told(number, collected)
    return collected


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
