"""`BackgroundCompiler`: compiles the next batch while the GPU times the last one.

A short list is one batch, whose verdicts are collected as they come.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, Self

from asmtune.core.config import Config
from asmtune.core.progress import ProgressListener
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Reason, Verdict
from asmtune.predict.prune.front import Outcomes, ProblemAnalysis
from asmtune.triton_api.user_state import carried

MOST: Final = 0.75
"""Share of a batch after which those that are left may be stragglers."""

PATIENCE: Final = 4.0
"""Factor of the time of that share, and at least `LEAST_S`, to wait for stragglers. In a batch of
softmax configs on an H200 machine all but one took 0.5 s, and that one more than 30."""

LEAST_S: Final = 2.0

_LOOK_S: Final = 0.05
_ARRIVAL_S: Final = 0.01


class StragglerTimer(ProgressListener):
    """Times a batch to find stragglers; passes the funnel's progress on.

    While the `default` is compiled, nothing is given up: others are compared with its output.
    """

    def __init__(self, inner: ProgressListener, default: Config | None = None) -> None:
        self._inner, self.default = inner, default
        self._total, self._done = 0, 0
        self._began = self._most_s = 0.0

    def start(self, stage: str, total: int) -> None:
        """Start the clock of a batch."""
        self._began, self._most_s = time.monotonic(), 0.0
        self._total, self._done = total, 0
        self._inner.start(stage, total)

    def advance(self) -> None:
        """Count one more of the batch as done."""
        self._done += 1
        if self._done >= MOST * self._total and not self._most_s:
            self._most_s = time.monotonic() - self._began
        self._inner.advance()

    def overdue_s(self) -> float:
        """Return the seconds that a batch has taken if the rest is overdue; else 0."""
        taken = time.monotonic() - self._began
        late = self._most_s and taken > max(LEAST_S, PATIENCE * self._most_s)
        return taken if late and self._done < self._total else 0.0


class BackgroundCompiler:
    """Compiles one batch at a time: a thread hands it to the workers and judges the results.

    Stragglers are given up, so that one config that keeps the compiler busy for minutes does
    not keep the search waiting. Use as a context manager: leaving it ends what is being
    compiled.

    Args:
        front: the problem's front end, which that thread shares with its caller.
        known: outcomes of compiles by digest, shared between problems.
        stragglers: the front's progress.
        one_by_one: whether `collect` returns verdicts as they come, for a short list.
        first: called in a thread with the first config that is worth timing.
    """

    def __init__(
        self,
        front: ProblemAnalysis,
        known: Outcomes,
        stragglers: StragglerTimer,
        *,
        one_by_one: bool = False,
        first: Callable[[Verdict], None] | None = None,
    ) -> None:
        self._front, self._known, self._stragglers = front, known, stragglers
        self._threads = ThreadPoolExecutor(2, "asmtune-compile", carried())
        self._one_by_one, self._first = one_by_one, first
        self._batch: tuple[Config, ...] = ()
        self._left: dict[Config, None] = {}
        self._arrived: queue.SimpleQueue[Verdict] = queue.SimpleQueue()
        self._began = self._last = 0.0
        self._reason = ""
        self._future: Future[list[Verdict]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what is being compiled."""
        self._front.stop()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def start(self, configs: Sequence[Config]) -> None:
        """Start a batch; an empty one starts nothing, nor does one that is being compiled."""
        if self._future is not None and tuple(configs) == self._batch:
            return
        self._batch = tuple(configs)
        if self._batch:
            self._left, self._reason = dict.fromkeys(self._batch), ""
            self._began = self._last = time.monotonic()
            self._future = self._threads.submit(
                self._front.verdicts, self._batch, "assembly", self._known, self._arrive
            )

    def collect(self) -> list[Verdict]:
        """Wait for the current batch and return its verdicts in order ([] if none was started).

        For a short list, wait for the next ones; return [] when all were returned.

        Raises:
            ProblemError: arguments and config do not fit the kernel.
            StoreError: no folder for artifacts can be written.
        """
        if self._one_by_one:
            return self._next()
        future, self._future = self._future, None
        if future is None:
            return []
        while not wait([future], _LOOK_S).done:
            self._drop(self._take())
            self._give_up()
        self._take()
        return self._rest(self._batch, future)

    def _next(self) -> list[Verdict]:
        future = self._future
        if future is None:
            return []
        while not (verdicts := self._take()) and not future.done():
            self._give_up()
            wait([future], _ARRIVAL_S)
        if not verdicts:
            self._future = None
            verdicts = self._rest(self._left, future)
            self._take()
        self._drop(verdicts)
        return verdicts

    def _give_up(self) -> None:
        """End what is being compiled if it is overdue, and the default is not among it."""
        if self._reason or self._stragglers.default in self._left:
            return
        if seconds := self._stragglers.overdue_s():
            done = "in which nearly all of its batch were done"
            self._reason = f"given up after {seconds:.1f} s, {done}"
            self._front.stop()

    def _rest(self, configs: Iterable[Config], future: Future[list[Verdict]]) -> list[Verdict]:
        by_config = {verdict.config: verdict for verdict in future.result()}
        return [by_config.get(config) or _given_up(config, self._reason) for config in configs]

    def _drop(self, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            self._left.pop(verdict.config, None)

    def _arrive(self, verdict: Verdict) -> None:
        self._arrived.put(verdict)
        self._last = time.monotonic()
        if verdict.kept and self._first is not None:
            first, self._first = self._first, None
            self._threads.submit(first, verdict)

    def _take(self) -> list[Verdict]:
        """Return the verdicts that have come since the last call."""
        return [self._arrived.get() for _ in range(self._arrived.qsize())]


def _given_up(config: Config, text: str) -> Verdict:
    failure = Failure("compile", "timeout", text)
    return Verdict(config, False, "compile", reasons=(Reason("timeout", text),), failure=failure)
