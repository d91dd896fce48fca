"""`RunWatch`: writes a run's trace, reports its progress and stores its timings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement, Provenance
from asmtune.core.records.verdicts import Verdict
from asmtune.measure.bench.base import Outcome
from asmtune.predict.prune.flow import Funnel
from asmtune.store.safe_store import SafeStore
from asmtune.store.trace.run import CostRow, Ending, Header
from asmtune.store.trace.writer import TraceWriter
from asmtune.tuning.listener import TuningListener
from asmtune.tuning.objective import pareto_front
from asmtune.tuning.search.state import State

if TYPE_CHECKING:
    from asmtune.tuning.finals import FinalDecision


class RunWatch(TuningListener):
    """Records everything that one run does; a listener of its search, and a context manager.

    Left by an exception, the trace says that the run failed or was interrupted.
    """

    def __init__(
        self,
        funnel: Funnel,
        header: Header,
        listener: TuningListener,
        store: SafeStore,
        expected: Provenance,
    ) -> None:
        listener.begin(header)
        self.expected = expected
        self.seconds: dict[str, float] = {}
        self._writer = TraceWriter(funnel.settings.runs_dir, header)
        self._listener, self._store, self._key = listener, store, header.key
        self._state: State | None = None
        self._batches = self._trials = 0
        self._ended = False
        self._since = time.perf_counter()

    @property
    def run(self) -> str:
        """Return the run's id."""
        return self._writer.run

    @contextmanager
    def timed_stage(self, name: str) -> Iterator[None]:
        """Time a stage and report it."""
        self._listener.stage(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(time.perf_counter() - start, 3)
            self._writer.stage(name, self.seconds[name])

    def note(self, text: str) -> None:
        """Write a note for the reader of the trace."""
        self._writer.note(text)

    def measured(self, outcomes: Sequence[Outcome]) -> None:
        """Store single outcomes at once."""
        timed = [o for _, o in outcomes if isinstance(o, Measurement)]
        failed = [(config, o) for config, o in outcomes if isinstance(o, Failure)]
        if outcomes:
            self._store.save_outcomes(self._key, self.expected, timed, failed)

    def search_started(self, state: State) -> None:
        """Record the verdicts that the search begins with."""
        self._state = state
        self.ranked_again(state)

    def ranked_again(self, state: State) -> None:
        """Record the verdicts before compiling, in the place of those recorded before."""
        self._writer.ranking(list(state.initial.values()), state.default)
        self._report_progress()

    def batch(self, verdicts: Sequence[Verdict], seconds: float) -> None:
        """Record a compiled batch."""
        self._batches += 1
        self._writer.batch(self._batches, seconds, verdicts)
        self._report_progress()

    def trial(self, outcomes: Sequence[Outcome], gain: float | None) -> None:
        """Record timed configs."""
        self._trials += 1
        seconds = time.perf_counter() - self._since
        best_us = self._state.best_us if self._state is not None else None
        self._writer.trial(self._trials, seconds, outcomes, best_us=best_us, expected_gain=gain)
        self._report_progress()

    def decided(self, decision: FinalDecision) -> None:
        """Record the finals."""
        self._writer.final(decision.outcomes)
        if decision.costs:
            front = {one.config for one in pareto_front(decision.costs)}
            self._writer.costs(
                CostRow(
                    config=c.config,
                    time_us=c.time_us,
                    energy_mj=c.energy_mj,
                    memory_bytes=c.memory_bytes,
                    on_front=c.config in front,
                    flops=c.flops,
                    error=c.error,
                )
                for c in decision.costs
            )

    def end(self, ending: Ending) -> None:
        """Record that the run has ended well."""
        self._ended = True
        self._writer.end(ending)
        self._listener.end(ending)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if not self._ended:
            failed = isinstance(error, Exception)
            self.end(self._cut_off(f"failed: {error}" if failed else "interrupted"))
        self._writer.close()

    def _cut_off(self, reason: str) -> Ending:
        state = self._state
        compiled, timed = (state.compiles, state.trials) if state is not None else (0, 0)
        return Ending(None, None, None, " ".join(reason.split()), self.seconds, compiled, timed)

    def _report_progress(self) -> None:
        self._since = time.perf_counter()
        if self._state is not None:
            self._listener.progress(self._state)
