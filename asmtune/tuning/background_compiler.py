"""`BackgroundCompiler`: compiles the next batch while the GPU times the last one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, Self

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Reason, Verdict
from asmtune.predict.prune.front import Front, Outcomes, ProgressListener

MOST: Final = 0.75
"""Share of a batch after which those that are left may be stragglers."""

PATIENCE: Final = 4.0
"""Factor of the time of that share, and at least `LEAST_S`, to wait for stragglers. Of a batch of
softmax configs on an H200 machine all but one took 0.5 s, and that one more than 30."""

LEAST_S: Final = 2.0

_LOOK_S: Final = 0.05


class StragglerTimer(ProgressListener):
    """Times a batch to find stragglers; passes the funnel's progress on."""

    def __init__(self, inner: ProgressListener) -> None:
        self._inner = inner
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
        front: the problem's front end; only that thread uses it while a batch is compiled.
        known: outcomes of compiles by digest, shared between problems.
        stragglers: the front's progress.
        on_first_batch: called once, while the first batch is compiled.
    """

    def __init__(
        self,
        front: Front,
        known: Outcomes,
        stragglers: StragglerTimer,
        on_first_batch: Callable[[], None] = lambda: None,
    ) -> None:
        self._front, self._known, self._stragglers = front, known, stragglers
        self._on_first_batch: Callable[[], None] | None = on_first_batch
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="asmtune-compile")
        self._batch: tuple[Config, ...] = ()
        self._future: Future[list[Verdict]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._front.stop()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def start(self, configs: Sequence[Config]) -> None:
        """Start a batch; an empty one starts nothing."""
        self._batch = tuple(configs)
        if self._batch:
            self._future = self._threads.submit(
                self._front.verdicts, self._batch, "assembly", self._known
            )
            on_first_batch, self._on_first_batch = self._on_first_batch, None
            if on_first_batch is not None:
                on_first_batch()

    def collect(self) -> list[Verdict]:
        """Wait for the current batch and return its verdicts in order ([] if none was started).

        Raises:
            ProblemError: arguments and config do not fit the kernel.
            StoreError: no folder for artifacts can be written.
        """
        future, self._future = self._future, None
        if future is None:
            return []
        overdue_s = 0.0
        while not wait([future], _LOOK_S).done:
            if not overdue_s and (overdue_s := self._stragglers.overdue_s()):
                self._front.stop()
        by_config = {verdict.config: verdict for verdict in future.result()}
        return [by_config.get(config) or _given_up(config, overdue_s) for config in self._batch]


def _given_up(config: Config, seconds: float) -> Verdict:
    text = f"given up after {seconds:.1f} s, in which nearly all of its batch were done"
    failure = Failure("compile", "timeout", text)
    return Verdict(config, False, "compile", reasons=(Reason("timeout", text),), failure=failure)
