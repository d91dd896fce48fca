"""Tuning runs from their traces, as text and JSON: costs, funnel, timings, and the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from asmtune.core.config import Config, varying
from asmtune.report.cells import (
    ReportTable,
    changes,
    count,
    dtype_words,
    number,
    one_line,
    plain_table,
    share,
    words,
)
from asmtune.report.documents import document_text
from asmtune.store.trace.reader import encoded
from asmtune.store.trace.run import CostRow, Summary, Timing, TracedRun


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
    # Caps are read off machine code, so that what has one was not of the space.
    capped = any(p.config.maxnreg for p in run.ranking.configs) if run.ranking else False
    added = 0 if capped else sum(config.maxnreg is not None for config in run.compiled())
    left = candidates - sum(fallen.count for fallen in dropped) - (compiled - added)
    if left > 0:
        yield FunnelLine("prediction", "not compiled", -left)
    if added:
        yield FunnelLine("caps", "added", added)


MOST_ROWS: Final = 25
"""Timed configs that the table shows; JSON has all."""

NOT_ENDED: Final = "it did not end: it was killed, or goes on"


def run_report(run: TracedRun) -> Group:
    """Lay out a run: seconds and dropped configs by stage, what was timed, and why it ended."""
    parts: list[RenderableType] = [*_title(run), _seconds(run), _funnel(run)]
    timings = run.timings()
    if timings:
        parts.append(_timed(run, timings))
        parts += _compared(run, timings)
    if run.costs:
        parts.append(costs_table(run.costs))
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
        shown = f"+{step.configs}" if step.stage == "caps" else str(step.configs)
        table.add_row(one_line(step.stage), one_line(step.what), shown)
    return table


def _timed(run: TracedRun, timings: Mapping[Config, Timing]) -> ReportTable:
    axes, compiled = varying(list(timings)), run.compiled()
    places = {config: place for place, config in enumerate(timings, 1)}
    shown = [c for c in timings if places[c] <= MOST_ROWS or c == run.header.default]
    predictions = {p.config: p for p in run.ranking.configs} if run.ranking else {}
    compiled_to = ("pred us", "pred rank", "regs", "spills", "shared KiB")
    cited = ("p90 us", "p99 us", "RSD")
    spare = (*cited[:2], *reversed(compiled_to), "spread", "RSD", "samples")
    table = plain_table("Timed, fastest first", ("",), left=0, spare=spare)
    for axis in axes:
        table.add_column(axis)
    for heading in ("us", "spread", *cited, "samples", *compiled_to):
        table.add_column(heading)
    marks = {run.header.default: "default "}
    if run.ending is not None and run.ending.winner is not None:
        marks[run.ending.winner] = "winner "
    for config in shown:
        timing, row, values = timings[config], compiled.get(config), config.to_dict()
        prediction = row or predictions.get(config)
        rank = predictions[config].rank if config in predictions else None
        kib = None if row is None or row.shared is None else row.shared / 1024
        table.add_row(
            f"{marks.get(config, '')}{places[config]}",
            *(str(values.get(axis, "-")) for axis in axes),
            number(timing.median_us),
            f"{timing.spread:.1%}",
            number(timing.p90_us),
            number(timing.p99_us),
            share(timing.rsd),
            str(timing.samples),
            number(prediction.predicted_us if prediction else None),
            count(rank),
            count(row.regs if row else None),
            count(row.spills if row else None),
            number(kib, 0),
        )
    if len(shown) < len(timings):
        table.caption = f"{len(timings) - len(shown)} slower ones are left out; --json has all"
    return table


def _compared(run: TracedRun, timings: Mapping[Config, Timing]) -> Iterator[Text]:
    default, ending = run.header.default, run.ending
    if ending is not None and ending.winner is not None:
        label, best = "winner ", ending.winner
        before, after = ending.default_us, ending.median_us
    else:
        label, best = "fastest", next(iter(timings))
        before = timings[default].median_us if default in timings else None
        after = timings[best].median_us
    yield Text.assemble(f"{label} ", (one_line(str(best)), "bold"))
    yield Text(f"default {one_line(str(default))}")
    if best == default:
        yield Text(f"nothing was faster than the default, {number(after)} us")
        return
    text = f"{number(after)} us instead of {number(before)} us"
    if before and after:
        text += f", {before / after:.2f} times as fast"
    yield Text(f"{text}; {changes(default, best)}")


def runs_table(runs: Sequence[Summary]) -> ReportTable:
    """Tabulate runs, a line each."""
    title = "Tuning runs, the latest last; `asmtune runs show RUN` shows one"
    headings = ("run", "shape", "dtypes", "device", "us", "speed-up", "compiled", "timed", "s")
    spare = ("s", "timed", "compiled", "dtypes", "device")
    table = plain_table(title, headings, left=4, spare=spare)
    table.add_column("end", left=True)
    for one in runs:
        key, ending = one.header.key, one.ending
        table.add_row(
            one.run,
            words(one.header.shape),
            dtype_words(key.dtypes),
            one_line(key.device),
            number(ending.median_us if ending else None),
            number(ending.speedup if ending else None, 2),
            count(ending.compiled if ending else None),
            count(ending.timed if ending else None),
            number(one.seconds),
            one_line(ending.reason) if ending else "not ended",
        )
    return table


def costs_table(costs: Iterable[CostRow]) -> ReportTable:
    """Tabulate time, energy, memory and error of a launch; a star marks configs that none beats."""
    title = "Costs of a launch; * where no other config is better in everything"
    headings: tuple[str, ...]
    headings = ("", "config", "us", "mJ", "GOPS", "GOPS/W", "memory KiB a program")
    costs = list(costs)
    has_error = any(cost.error is not None for cost in costs)
    headings += ("p99 error",) if has_error else ()
    table = plain_table(title, headings, left=2, spare=("GOPS",))
    for cost in sorted(costs, key=lambda cost: cost.time_us):
        table.add_row(
            "*" if cost.on_front else "",
            one_line(str(cost.config)),
            number(cost.time_us),
            number(cost.energy_mj, 2),
            number(cost.gops),
            number(cost.gops_per_w, 2),
            number(cost.memory_bytes / 1024),
            *([number(cost.error, 5)] if has_error else []),
        )
    return table


def costs_json(costs: Iterable[CostRow]) -> list[dict[str, Any]]:
    """Convert costs to JSON values, with the rates where they are known."""
    return [
        encoded(cost) | encoded({"gops": cost.gops, "gops_per_w": cost.gops_per_w})
        if cost.flops
        else encoded(cost)
        for cost in costs
    ]


RUN_FORMAT: Final = "asmtune-run"
RUNS_FORMAT: Final = "asmtune-runs"

_PREDICTED: Final = ("predicted_us", "regs", "spills", "shared")


def run_json(run: TracedRun) -> str:
    """Write all of a run: `{"format", "version", "run", "header", "funnel", "timed", ...}`."""
    compiled = run.compiled()
    timed = []
    for config, timing in run.timings().items():
        row = encoded(compiled.get(config)) or {}
        prediction = {name: row[name] for name in _PREDICTED if name in row}
        timed.append({**encoded(timing), **prediction, "config": config.to_dict()})
    failed = [{"config": c.to_dict(), **encoded(failure)} for c, failure in run.failures().items()]
    document = {
        "run": run.run,
        "header": encoded(run.header),
        "seconds": run.seconds,
        "seconds_by_stage": seconds_by_stage(run),
        "funnel": [step._asdict() for step in funnel_steps(run)],
        "timed": timed,
        "finals": [row.config.to_dict() for row in run.finals],
        "failed": failed,
        "refused": [encoded(row) for row in compiled.values() if row.dropped_at is not None],
        "foreseen": encoded(run.ranking),
        "costs": costs_json(run.costs),
        "ending": encoded(run.ending),
        "notes": list(run.notes),
    }
    return document_text(RUN_FORMAT, document)


def runs_json(runs: Sequence[Summary]) -> str:
    """Write runs in short, oldest first: `{"format", "version", "runs": [...]}`."""
    rows = [
        {
            "run": one.run,
            "header": encoded(one.header),
            "seconds": one.seconds,
            "ending": encoded(one.ending),
        }
        for one in runs
    ]
    return document_text(RUNS_FORMAT, {"runs": rows})
