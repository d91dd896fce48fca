"""The listener of a tuning run, and the log that writes its trace and progress."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from asmtune.base.text import amount, user_stacklevel
from asmtune.core.config import Config
from asmtune.core.progress import ProgressListener
from asmtune.core.records.artifacts import Failure
from asmtune.store.trace.run import Ending
from asmtune.store.trace.writer import TraceWriter

if TYPE_CHECKING:
    from asmtune.core.records.tuned import Outcome
    from asmtune.core.records.verdicts import Verdict
    from asmtune.predict.prune.flow import Funnel
    from asmtune.store.trace.run import Header
    from asmtune.tuning.search.state import SearchState


class TuningListener(ProgressListener):
    """Hears a tuner, its runs and their searches; each method does nothing.

    A subclass defines the methods that it needs. Those from `search_started` on are called by a
    search.
    """

    def waiting(self, holder: str) -> None:
        """Note that another process, named `holder`, tunes the key and is waited for."""

    def begin(self, header: Header) -> None:
        """Note that a tuning run begins."""

    def stage(self, name: str) -> None:
        """Note that a stage of a run begins."""

    def progress(self, state: SearchState) -> None:
        """Note that more is compiled or timed."""

    def search_started(self, state: SearchState) -> None:
        """Note that a search begins, with what is known before anything is compiled."""

    def ranked_again(self, state: SearchState) -> None:
        """Note that more of the space is sketched, and all of it ranked again."""

    def batch(self, verdicts: Sequence[Verdict], seconds: float) -> None:
        """Note that a batch is compiled, and that the search waited `seconds` for it."""

    def trial(self, outcomes: Sequence[Outcome], gain: float | None) -> None:
        """Note that configs are timed; `gain` is expected of the batch compiled meanwhile."""


class RunWatch(TuningListener):
    """Records everything that one run does; a listener of its search, and a context manager.

    Left by an exception, the trace says that the run failed or was interrupted.
    """

    def __init__(
        self,
        funnel: Funnel,
        header: Header,
        listener: TuningListener,
    ) -> None:
        listener.begin(header)
        self.seconds: dict[str, float] = {}
        self._writer = TraceWriter(funnel.settings.runs_dir, header)
        self._listener = listener
        self._state: SearchState | None = None
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

    def search_started(self, state: SearchState) -> None:
        """Record the verdicts that the search begins with."""
        self._state = state
        self.ranked_again(state)

    def ranked_again(self, state: SearchState) -> None:
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

    def decided(self, outcomes: Sequence[Outcome]) -> None:
        """Record the finals."""
        self._writer.final(outcomes)

    def end(self, ending: Ending) -> None:
        """Record that the run has ended well."""
        self._ended = True
        self._writer.end(ending)

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


class DefaultOnlyWarning(UserWarning):
    """Every config that was tried computes something else than the default, which is kept."""


class CompileMemoryWarning(UserWarning):
    """The limit of memory of compiles has cost a search several configs."""


_told: Final[set[tuple[str, type[UserWarning]]]] = set()

_SEVERAL: Final = 2


def tell_of_failures(kernel: str, state: SearchState, compile_memory_bytes: int) -> None:
    """Warn of what explains a search's failures, each once for a kernel."""
    failures = {c: failure for c, failure in state.failures.items() if c != state.default}
    wrong = {c: f for c, f in failures.items() if f.stage == "check" and f.kind != "unchecked"}
    if wrong and set(state.timings) == {state.default}:
        _tell(
            kernel,
            DefaultOnlyWarning,
            f"nothing was tuned, since the output of each of {len(wrong)} configs that ran differs "
            f"from the default's: {_first(wrong)}; make the kernel compute the same with every "
            "config, or say what is right by reference=",
        )
    starved = {c: f for c, f in state.failures.items() if f.kind == "memory" and _compiles(f)}
    if len(starved) >= _SEVERAL:
        _tell(
            kernel,
            CompileMemoryWarning,
            f"{len(starved)} of {len({*state.verdicts, *state.failures})} configs could not be "
            f"compiled within {amount(compile_memory_bytes, 'B')} of address space: "
            f"{_first(starved)}; set ASMTUNE_COMPILE_MEMORY_MB higher, or take large tiles out of "
            "the space",
        )


def _compiles(failure: Failure) -> bool:
    return failure.stage not in ("launch", "check", "restore")


def _first(failures: dict[Config, Failure]) -> str:
    config, failure = next(iter(failures.items()))
    detail = failure.detail.splitlines()
    return f"the first, {config}: {detail[0] if detail else failure.kind}"


def _tell(kernel: str, kind: type[UserWarning], text: str) -> None:
    if (kernel, kind) not in _told:
        _told.add((kernel, kind))
        warnings.warn(f"kernel {kernel}: {text}", kind, stacklevel=user_stacklevel("contextlib"))
