"""Tuning runs from their traces, as text and JSON: funnel, timings, and the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from asmtune.core.config import Config, varying
from asmtune.report.cells import (
    Column,
    ReportTable,
    changes,
    dtype_words,
    kib,
    number,
    one_line,
    plain_table,
    rows_table,
    share,
    words,
)
from asmtune.report.documents import document_text
from asmtune.store.trace.reader import encoded
from asmtune.store.trace.run import Ending, Timing, TracedRun


class FunnelLine(NamedTuple):
    """A line of the funnel: what is left or, below 0, what fell there, in configs."""

    stage: str
    what: str
    configs: int


def seconds_by_stage(run: TracedRun) -> dict[str, float]:
    """Return the seconds of a run by stage, summed up so far if it has not ended."""
    if run.ending is not None:
        return dict(run.ending.seconds)
    seconds: dict[str, float] = {}
    for name, spent in run.stages:
        seconds[name] = seconds.get(name, 0.0) + spent
    return seconds


def funnel_steps(run: TracedRun) -> list[FunnelLine]:
    """List what each stage passed on, from the space to the finalists, and what fell before."""
    compiled = run.compiled()
    steps: list[FunnelLine] = []
    if run.ranking is not None:
        steps += _before_compiling(run, run.ranking.count, len(compiled))
    steps.append(FunnelLine("compiled", "configs", len(compiled)))
    refused = Counter(
        (row.dropped_at, (row.reason or "").partition(":")[0])
        for row in compiled.values()
        if row.dropped_at is not None
    )
    steps += [FunnelLine(stage, what, -fallen) for (stage, what), fallen in refused.most_common()]
    failed = Counter((f.stage, f.kind) for f in run.failures().values())
    steps += [FunnelLine(*key, -fallen) for key, fallen in failed.most_common()]
    steps.append(FunnelLine("timed", "configs", len(run.timings())))
    if run.finals:
        steps.append(FunnelLine("finals", "configs", len({row.config for row in run.finals})))
    return steps


def _before_compiling(run: TracedRun, candidates: int, compiled: int) -> Iterator[FunnelLine]:
    yield FunnelLine("space", "candidates", candidates)
    dropped = run.ranking.dropped if run.ranking is not None else ()
    for fallen in dropped:
        yield FunnelLine(fallen.stage, fallen.reason, -fallen.count)
    left = candidates - sum(fallen.count for fallen in dropped) - compiled
    if left > 0:
        yield FunnelLine("prediction", "not compiled", -left)


MOST_ROWS: Final = 25
"""Timed configs that the table shows; JSON has all."""

NOT_ENDED: Final = "it did not end: it was killed, or goes on"


def run_report(run: TracedRun) -> Group:
    """Lay out a run: seconds and dropped configs by stage, what was timed, and why it ended."""
    parts: list[RenderableType] = [*_title(run), _seconds(run), _funnel(run)]
    if timings := run.timings():
        parts.append(_timed(run, timings))
    if run.ending is not None and run.ending.winner is not None:
        parts += _compared(run.header.default, run.ending.winner, run.ending)
    if failures := run.failures():
        table = plain_table("Failed", ("kind", "stage", "configs", "the first of them"), left=4)
        kinds = Counter((f.kind, f.stage) for f in failures.values())
        for (kind, stage), times in kinds.most_common():
            first = next(f for f in failures.values() if (f.kind, f.stage) == (kind, stage))
            table.add_row(one_line(kind), one_line(stage), str(times), one_line(first.detail))
        parts.append(table)
    reason = NOT_ENDED if run.ending is None else run.ending.reason
    parts.append(Text(f"After {run.seconds:.1f} s: {one_line(reason)}."))
    parts += [Text(one_line(note), "yellow") for note in run.notes]
    return Group(*parts)


def _title(run: TracedRun) -> Iterator[Text]:
    header = run.header
    what = f" {words(header.shape)} {dtype_words(header.key.dtypes)}"
    yield Text.assemble((one_line(header.kernel), "bold"), what)
    where = f"run {run.run}, {header.date}, on {header.key.device}"
    yield Text(one_line(f"{where}; {words(header.versions)}"))
    limits = header.effort.get("limits")
    choices = {
        "effort": header.effort.get("name"),
        **header.effort,
        **(limits if isinstance(limits, dict) else {}),
        "strategy": header.strategy,
        "seed": header.seed,
    }
    shown = {n: v for n, v in choices.items() if n != "name" and isinstance(v, int | float | str)}
    yield Text(words(shown), "dim")


def _seconds(run: TracedRun) -> ReportTable:
    table = plain_table("Seconds by stage", ("stage", "s"))
    for stage, seconds in seconds_by_stage(run).items():
        table.add_row(one_line(stage), f"{seconds:.2f}")
    table.add_section()
    table.add_row("wall clock", f"{run.seconds:.2f}")
    return table


def _funnel(run: TracedRun) -> ReportTable:
    table = plain_table("Dropped configs by stage", ("stage", "reason", "configs"), left=2)
    for step in funnel_steps(run):
        table.add_row(one_line(step.stage), one_line(step.what), str(step.configs))
    return table


def _timed(run: TracedRun, timings: Mapping[Config, Timing]) -> ReportTable:
    rows = timed_rows(run)
    shown = [
        row | {"marked": f"{row['mark']} {row['place']}".lstrip()}
        for row in rows
        if row["place"] <= MOST_ROWS or row["mark"] == "default"
    ]
    axes = [Column(axis, f"config.{axis}") for axis in varying(list(timings))]
    spare = ("p90 us", *(c.heading for c in reversed(_PREDICTED)), "spread")
    columns = [Column("", "marked"), *axes, *_TIMES, *_PREDICTED]
    table = rows_table("Timed, fastest first", shown, columns, spare=spare)
    if len(shown) < len(rows):
        table.caption = f"{len(rows) - len(shown)} slower ones are left out; --format json has all"
    return table


def timed_rows(run: TracedRun) -> list[dict[str, Any]]:
    """Return the timed configs, fastest first, with what was known of each before."""
    compiled = run.compiled()
    predictions = {p.config: p for p in run.ranking.configs} if run.ranking else {}
    marks = {run.header.default: "default"}
    if run.ending is not None and run.ending.winner is not None:
        marks[run.ending.winner] = "winner"
    rows = []
    for place, (config, timing) in enumerate(run.timings().items(), 1):
        known = encoded(compiled.get(config) or predictions.get(config)) or {}
        rows.append(
            {name: known.get(name) for name in ("predicted_us", "regs", "spills", "shared")}
            | encoded(timing)
            | {
                "config": config.to_dict(),
                "place": place,
                "mark": marks.get(config, ""),
                "rank": predictions[config].rank if config in predictions else None,
                "spread": timing.spread,
            }
        )
    return rows


_TIMES: Final = (
    Column("us", "median_us", number),
    Column("spread", "spread", share),
    Column("p90 us", "p90_us", number),
)

_PREDICTED: Final = (
    Column("pred us", "predicted_us", number),
    Column("pred rank", "rank"),
    Column("regs", "regs"),
    Column("spills", "spills"),
    Column("shared KiB", "shared", kib),
)


def _compared(default: Config, best: Config, ending: Ending) -> Iterator[Text]:
    before, after = ending.default_us, ending.median_us
    yield Text.assemble("winner  ", (one_line(str(best)), "bold"))
    yield Text(f"default {one_line(str(default))}")
    if best == default:
        yield Text(f"nothing was faster than the default, {number(after)} us")
        return
    speedup = "" if ending.speedup is None else f", {ending.speedup:.2f} times as fast"
    text = f"{number(after)} us instead of {number(before)} us{speedup}"
    yield Text(f"{text}; {changes(default, best)}")


def run_rows(runs: Iterable[TracedRun]) -> list[dict[str, Any]]:
    """Return runs in short, a row each."""
    return [
        {
            "run": one.run,
            "header": encoded(one.header),
            "shape": encoded(one.header.shape),
            "seconds": one.seconds if one.ending else None,
            "speedup": one.ending.speedup if one.ending else None,
            "ending": encoded(one.ending),
        }
        for one in runs
    ]


_RUNS: Final = (
    Column("run", "run", left=True),
    Column("shape", "shape", words, left=True),
    Column("dtypes", "header.key.dtypes", dtype_words, left=True),
    Column("device", "header.key.device", left=True),
    Column("us", "ending.median_us", number),
    Column("speed-up", "speedup", lambda value: number(value, 2)),
    Column("compiled", "ending.compiled"),
    Column("timed", "ending.timed"),
    Column("s", "seconds", number),
    Column("end", "ending.reason", lambda reason: reason or "not ended", left=True),
)


def runs_table(runs: Iterable[TracedRun]) -> ReportTable:
    """Tabulate runs, a line each."""
    title = "Tuning runs, the latest last; `asmtune runs show RUN` shows one"
    spare = ("s", "timed", "compiled", "dtypes", "device")
    return rows_table(title, run_rows(runs), _RUNS, spare=spare)


RUN_FORMAT: Final = "asmtune-run"
RUNS_FORMAT: Final = "asmtune-runs"


def run_json(run: TracedRun) -> str:
    """Write all of a run: `{"format", "version", "run", "header", "funnel", "timed", ...}`."""
    compiled = run.compiled()
    failed = [{"config": c.to_dict(), **encoded(failure)} for c, failure in run.failures().items()]
    document = {
        "run": run.run,
        "header": encoded(run.header),
        "seconds": run.seconds,
        "seconds_by_stage": seconds_by_stage(run),
        "funnel": [step._asdict() for step in funnel_steps(run)],
        "timed": timed_rows(run),
        "finals": [row.config.to_dict() for row in run.finals],
        "failed": failed,
        "refused": [encoded(row) for row in compiled.values() if row.dropped_at is not None],
        "foreseen": encoded(run.ranking),
        "ending": encoded(run.ending),
        "notes": list(run.notes),
    }
    return document_text(RUN_FORMAT, document)


def runs_json(runs: Sequence[TracedRun]) -> str:
    """Write runs in short, oldest first: `{"format", "version", "runs": [...]}`."""
    return document_text(RUNS_FORMAT, {"runs": run_rows(runs)})
