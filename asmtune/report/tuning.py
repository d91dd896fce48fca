"""Results of `asmtune tune` as a table and as JSON, and its progress on stderr."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, Group, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from asmtune.report.cells import (
    Column,
    ReportTable,
    dtype_words,
    number,
    one_line,
    rows_table,
    share,
    words,
)
from asmtune.report.documents import document_text
from asmtune.store.trace.reader import encoded
from asmtune.store.trace.run import Header
from asmtune.tuning.listener import TuningListener
from asmtune.tuning.request import TuningResult

if TYPE_CHECKING:
    from asmtune.core.records.tuned import TuneRecord
    from asmtune.tuning.search.state import SearchState


TUNING_FORMAT: Final = "asmtune-tuning"

_OUTCOMES: Final = {"busy": "another process tunes it", "known": "known before"}


def speedup_of(result: TuningResult) -> float | None:
    """Return the default's time over the winner's; None if one is not known."""
    median_us = result.record.median_us if result.record is not None else None
    if median_us is None or result.default_us is None:
        return None
    return result.default_us / median_us


def results_table(results: Sequence[TuningResult]) -> Group:
    """Tabulate problems of one kernel, with a sum in a sentence."""
    key = results[0].request.key
    title = Text.assemble(
        (one_line(results[0].request.problem.name), "bold"),
        f" {dtype_words(key.dtypes)} on {one_line(key.device)}",
    )
    failed = [result for result in results if result.outcome == "failed"]
    lines = [Text(f"{words(r.request.problem.shape)}: {one_line(r.error)}", "red") for r in failed]
    parts: list[RenderableType] = [title, _table(results), Text(summary(results)), *lines]
    return Group(*parts)


def result_line(result: TuningResult) -> str:
    """Write the result of a problem as a line."""
    where = f"{one_line(result.request.problem.name)} {words(result.request.problem.shape)}"
    if result.record is None:
        return f"{where}: {result.outcome}: {one_line(result.error)}"
    line = f"{where}: {number(result.record.median_us)} us"
    if result.outcome == "known":
        return f"{line}, known before"
    faster = speedup_of(result)
    line += "" if faster is None else f", {faster:.2f} times as fast as the default"
    line += f" ({result.remark})" if result.remark else ""
    if result.earlier is not None:
        before = f"{number(result.earlier.median_us)} us with triton"
        line += f"; the fastest of {before} {result.earlier.provenance.triton}, timed again"
    took = f"{result.compiled} compiled, {result.timed} timed in {result.seconds:.1f} s"
    return f"{line}; {took}" + (f"; run {result.run}" if result.run else "")


def summary(results: Sequence[TuningResult]) -> str:
    """Sum results up in a line: `4 problems: 3 tuned, 1 known; ...`."""
    tally = Counter(result.outcome for result in results)
    counts = ", ".join(f"{n} {outcome}" for outcome, n in sorted(tally.items(), reverse=True))
    speedups = [s for result in results if (s := speedup_of(result)) is not None]
    line = f"{len(results)} {'problem' if len(results) == 1 else 'problems'}: {counts}"
    if len(speedups) > 1:
        mean = geometric_mean(speedups)
        line += f"; {mean:.2f} times as fast as the default, geometric mean of {len(speedups)}"
    return line


def results_json(results: Sequence[TuningResult]) -> str:
    """Write the results as JSON, `{"format", "version", "results": [...]}`, like the table."""
    return document_text(TUNING_FORMAT, {"results": [_result(result) for result in results]})


_TIMES: Final = (
    Column("us", "median_us", number),
    Column("default us", "default_us", number),
    Column("speed-up", "speedup", lambda value: number(value, 2)),
    Column("was us", "earlier.median_us", number),
    Column("with triton", "earlier.triton"),
    Column("p90 us", "statistics.p90_us", number),
    Column("p99 us", "statistics.p99_us", number),
    Column("RSD", "statistics.rsd", share),
    Column("samples", "statistics.samples"),
    Column("compiled", "compiled"),
    Column("timed", "timed"),
    Column("s", "seconds", number),
    Column("run", "run", left=True),
)


def _table(results: Sequence[TuningResult]) -> ReportTable:
    rows = [_result(result) for result in results]
    axes = dict.fromkeys(name for row in rows for name in row["winner"] or ())
    for row in rows:
        if row["outcome"] != "tuned":
            outcome = _OUTCOMES.get(row["outcome"], row["outcome"])
            row |= {"compiled": None, "timed": None, "run": row["run"] or outcome}
    shape = Column("shape", "shape", words, left=True)
    columns = [shape, *(Column(axis, f"winner.{axis}") for axis in axes), *_TIMES]
    spare = ("p90 us", "p99 us", "s", "timed", "compiled", "samples", "RSD")
    return rows_table("", rows, columns, spare=spare)


def _result(result: TuningResult) -> dict[str, Any]:
    key, record = result.request.key, result.record
    return {
        "kernel": key.kernel,
        "shape": encoded(result.request.problem.shape),
        "dtypes": dict(key.dtypes),
        "device": key.device,
        "outcome": result.outcome,
        "run": result.run,
        "winner": None if record is None else record.winner.to_dict(),
        "median_us": None if record is None else record.median_us,
        "statistics": None
        if record is None or record.timing is None
        else encoded(record.timing.statistics),
        "remark": result.remark or None,
        "default_us": result.default_us,
        "speedup": speedup_of(result),
        "earlier": _earlier(result.earlier),
        "compiled": result.compiled,
        "timed": result.timed,
        "seconds": round(result.seconds, 3),
        "error": result.error or None,
    }


def _earlier(record: TuneRecord | None) -> dict[str, Any] | None:
    """Return which Triton's record was timed again in the place of a search, and its old time."""
    if record is None:
        return None
    return {"triton": record.provenance.triton, "median_us": record.median_us}


class TuningProgress(TuningListener):
    """A line of progress, and a line for each problem that is done.

    Where stderr is no terminal only the latter is shown. Use as a context manager, within which
    warnings take one line each.
    """

    def __init__(self, problems: int, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._shown = self._console.is_interactive
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[status]}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=problems, status="")
        self._stage = ""
        self._exit = ExitStack()

    def __enter__(self) -> TuningProgress:
        self._exit.enter_context(warnings.catch_warnings())
        warnings.showwarning = self._warn
        if self._shown:
            self._exit.enter_context(self._progress)
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def waiting(self, holder: str) -> None:
        """Show that another process tunes the key."""
        self.say(f"waiting for process {one_line(holder)}, which tunes the same key")

    def begin(self, header: Header) -> None:
        """Show that a run begins."""
        what = f"{one_line(header.kernel)} {words(header.shape)} {dtype_words(header.key.dtypes)}"
        self._progress.update(self._task, description=what)
        self.stage("begin")

    def stage(self, name: str) -> None:
        """Show that a stage begins."""
        self._stage = name
        self._show(name)

    def progress(self, state: SearchState) -> None:
        """Show that more is compiled or timed."""
        failed = f" ({len(state.failures)} failed)" if state.failures else ""
        counts = f"{len(state.verdicts)} compiled, {len(state.timings)} timed{failed}"
        self._show(f"{self._stage}, {counts}, best {number(state.best_us)} us")

    def _show(self, status: str) -> None:
        self._progress.update(self._task, status=status)

    def finished(self, result: TuningResult) -> None:
        """Count a problem as done, whether it was tuned or not."""
        self._progress.advance(self._task)
        self.say(result_line(result))

    def refresh(self) -> None:
        """Show at once what is known; otherwise ten times a second."""
        self._progress.refresh()

    def say(self, line: str) -> None:
        """Print a line above the bar, or alone."""
        self._console.print(Text(line), soft_wrap=True)

    def _warn(self, message: Warning | str, *_: Any, **__: Any) -> None:
        self.say(f"asmtune: {one_line(str(message))}")
