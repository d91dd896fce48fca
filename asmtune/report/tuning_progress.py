"""How far a tuning command is, on stderr: compiled, timed, best so far, time left."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from asmtune.predict.prune.front import ProgressListener
from asmtune.report.cells import dtype_words, number, one_line, words
from asmtune.report.tuning import result_line
from asmtune.store.trace.run import Ending, Header

if TYPE_CHECKING:
    from asmtune.tuning.request import TuningResult
    from asmtune.tuning.search.state import State


class TimeEstimate:
    """How long a command still takes, as far as that can be told.

    A search ends when it finds no more, so that what is left of the first is a bound: its limit
    of seconds, or the rest of its space at the rate so far. Later ones take as long as those
    before them.

    Args:
        problems: how many there are.
        limit_s: seconds that each may take.
        now: seconds of a clock that never goes back.
    """

    def __init__(
        self, problems: int, limit_s: float = math.inf, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._now, self._limit = now, limit_s
        self._waiting = problems
        self._took: list[float] = []
        self.begin()

    def begin(self) -> None:
        """A problem begins."""
        self._began, self._bound = self._now(), math.inf

    def done(self, configs: int, of: int) -> None:
        """So many configs of its space are done."""
        spent = self._now() - self._began
        self._bound = spent * of / configs if configs else math.inf

    def end(self, *, counts: bool) -> None:
        """A problem is over; where it `counts`, later ones will take as long."""
        self._waiting -= 1
        if counts:
            self._took.append(self._now() - self._began)

    def left(self) -> str:
        """`about 40 s left`, or `up to 40 s left`; empty where nothing is known."""
        spent = self._now() - self._began
        most = max(min(self._limit, self._bound) - spent, 0.0)
        if self._took:
            usual = sum(self._took) / len(self._took)
            rest = min(max(usual - spent, 0.0), most) + usual * (self._waiting - 1)
            return f"about {duration(rest)} left"
        whole = most + (spent + most) * (self._waiting - 1)
        return f"up to {duration(whole)} left" if whole < math.inf else ""


def duration(seconds: float) -> str:
    """`40 s`, `12 min` or `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class TuningProgress(ProgressListener):
    """A line of progress, and a line for each problem that is done.

    Where stderr is no terminal only the latter is shown. Use as a context manager, within which
    warnings take one line each.

    Args:
        problems: how many there are.
        limit_s: seconds that each may take.
        console: to write to; stderr by default.
    """

    def __init__(
        self, problems: int, limit_s: float = math.inf, console: Console | None = None
    ) -> None:
        self._console = console or Console(stderr=True)
        self._shown = self._console.is_interactive
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[status]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=problems, status="")
        self._clock = TimeEstimate(problems, limit_s)
        self._stage = self._counts = ""
        self._step, self._steps = 0, 0
        self._exit = ExitStack()

    def __enter__(self) -> TuningProgress:
        self._exit.enter_context(warnings.catch_warnings())
        warnings.showwarning = self._warn
        if self._shown:
            self._exit.enter_context(self._progress)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exit.__exit__(kind, error, trace)

    def waiting(self, holder: str) -> None:
        """Another process tunes the key, and is waited for."""
        self.say(f"waiting for process {one_line(holder)}, which tunes the same key")

    def begin(self, header: Header) -> None:
        """A run begins."""
        self._clock.begin()
        what = f"{one_line(header.kernel)} {words(header.shape)} {dtype_words(header.key.dtypes)}"
        self._progress.update(self._task, description=what)
        self.stage("begin")

    def stage(self, name: str) -> None:
        """A stage begins."""
        self._stage, self._counts, self._steps = name, "", 0
        self._show()

    def progress(self, state: State) -> None:
        """More is compiled or timed."""
        self._clock.done(len(state.verdicts), len(state.configs))
        failed = f" ({len(state.failures)} failed)" if state.failures else ""
        counts = f"{len(state.verdicts)} compiled, {len(state.timings)} timed{failed}"
        self._counts = f"{counts}, best {number(state.best_us)} us"
        self._show()

    def start(self, stage: str, total: int) -> None:  # noqa: ARG002 - that of the run says more
        """Begins steps of a stage: configs that are sketched or compiled."""
        self._step, self._steps = 0, total

    def advance(self) -> None:
        """One step is done."""
        self._step += 1
        self._show()

    def _show(self) -> None:
        steps = f"{self._step} of {self._steps}" if self._step < self._steps else ""
        told = (f"{self._stage}", self._counts, steps, self._clock.left() if self._counts else "")
        self._progress.update(self._task, status=", ".join(filter(None, told)))

    def end(self, ending: Ending) -> None:
        """The run has ended."""
        self._progress.update(self._task, status=one_line(ending.reason))

    def finished(self, result: TuningResult) -> None:
        """A problem is done, whether it was tuned or not."""
        self._clock.end(counts=result.outcome == "tuned")
        self._progress.advance(self._task)
        self.say(result_line(result))

    def refresh(self) -> None:
        """Shows at once what is known; otherwise ten times a second."""
        self._progress.refresh()

    def say(self, line: str) -> None:
        """A line above the bar, or alone."""
        self._console.print(Text(line), soft_wrap=True)

    def _warn(self, message: Warning | str, *_: Any, **__: Any) -> None:
        self.say(f"asmtune: {one_line(str(message))}")
