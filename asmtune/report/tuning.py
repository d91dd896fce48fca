"""What became of the problems of one call of `tune`, as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from asmtune.report.cells import count, dtype_words, number, one_line, plain_table, words
from asmtune.report.documents import document_text
from asmtune.report.runs import costs_table
from asmtune.store.trace.json_codec import encoded
from asmtune.store.trace.run import CostRow
from asmtune.studies.replay.results import geometric_mean
from asmtune.tuning.request import TuningResult

TUNING_FORMAT: Final = "asmtune-tuning"

_OUTCOMES: Final = {"busy": "another process tunes it", "known": "known before"}


def speedup_of(result: TuningResult) -> float | None:
    """The default's time over the winner's; None where one is not known."""
    median_us = result.record.median_us if result.record is not None else None
    if median_us is None or result.default_us is None:
        return None
    return result.default_us / median_us


def results_table(
    results: Sequence[TuningResult], costs: Mapping[str, Sequence[CostRow]] | None = None
) -> Group:
    """A line a problem: best config, times, what it took; then the whole in a sentence.

    Args:
        results: at least one, of one kernel.
        costs: of the finalists' launches, by run, where more than time counts.
    """
    key = results[0].request.key
    title = Text.assemble(
        (one_line(results[0].request.problem.name), "bold"),
        f" {dtype_words(key.dtypes)} on {one_line(key.device)}",
    )
    failed = [result for result in results if result.outcome == "failed"]
    lines = [Text(f"{words(r.request.problem.shape)}: {one_line(r.error)}", "red") for r in failed]
    parts: list[RenderableType] = [title, _table(results), Text(summary(results)), *lines]
    for result in results:
        if found := (costs or {}).get(result.run or ""):
            parts += [Text(words(result.request.problem.shape), "bold"), costs_table(found)]
    return Group(*parts)


def result_line(result: TuningResult) -> str:
    """What became of one problem, in a line."""
    where = f"{one_line(result.request.problem.name)} {words(result.request.problem.shape)}"
    if result.record is None:
        return f"{where}: {result.outcome}: {one_line(result.error)}"
    line = f"{where}: {number(result.record.median_us)} us"
    if result.outcome == "known":
        return f"{line}, known before"
    faster = speedup_of(result)
    line += "" if faster is None else f", {faster:.2f} times as fast as the default"
    took = f"{result.compiled} compiled, {result.timed} timed in {result.seconds:.1f} s"
    return f"{line}; {took}" + (f"; run {result.run}" if result.run else "")


def summary(results: Sequence[TuningResult]) -> str:
    """`4 problems: 3 tuned, 1 known; ...` in one line."""
    tally = Counter(result.outcome for result in results)
    told = ", ".join(f"{n} {outcome}" for outcome, n in sorted(tally.items(), reverse=True))
    speedups = [s for result in results if (s := speedup_of(result)) is not None]
    line = f"{len(results)} {'problem' if len(results) == 1 else 'problems'}: {told}"
    if len(speedups) > 1:
        mean = geometric_mean(speedups)
        line += f"; {mean:.2f} times as fast as the default, geometric mean of {len(speedups)}"
    return line


def results_json(
    results: Sequence[TuningResult], costs: Mapping[str, Sequence[CostRow]] | None = None
) -> str:
    """What became of each problem: `{"format", "version", "results": [...]}`; as the table."""
    rows = [
        _result(result) | {"costs": encoded((costs or {}).get(result.run or "", ()))}
        for result in results
    ]
    return document_text(TUNING_FORMAT, {"results": rows})


def _table(results: Sequence[TuningResult]) -> Table:
    winners = [result.record.winner for result in results if result.record is not None]
    axes = list(dict.fromkeys(name for winner in winners for name in winner.to_dict()))
    table = plain_table("", ("shape", *map(one_line, axes)), left=1)
    for heading in ("us", "default us", "speed-up", "compiled", "timed", "s"):
        table.add_column(heading, justify="right")
    table.add_column("run")
    for result in results:
        record = result.record
        values = record.winner.to_dict() if record is not None else {}
        tuned = result.outcome == "tuned"
        table.add_row(
            words(result.request.problem.shape),
            *(one_line(str(values.get(axis, "-"))) for axis in axes),
            number(record.median_us if record is not None else None),
            number(result.default_us),
            number(speedup_of(result), 2),
            count(result.compiled if tuned else None),
            count(result.timed if tuned else None),
            number(result.seconds),
            result.run or _OUTCOMES.get(result.outcome, result.outcome),
        )
    return table


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
        "default_us": result.default_us,
        "speedup": speedup_of(result),
        "compiled": result.compiled,
        "timed": result.timed,
        "seconds": round(result.seconds, 3),
        "error": result.error or None,
    }
