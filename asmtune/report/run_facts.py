"""What a run's trace adds up to: the funnel, its progress, seconds by stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from asmtune.store.trace.run import Timing, TracedRun


class FunnelLine(NamedTuple):
    """A line of the funnel: what is left or, below 0, what fell there, in configs."""

    stage: str
    what: str
    configs: int


class Far(NamedTuple):
    """How far a run was `t` seconds after its start: configs so far, and what was expected."""

    t: float
    compiled: int
    timed: int
    failed: int
    best_us: float | None
    expected_gain: float | None


def seconds_by_stage(run: TracedRun) -> dict[str, float]:
    """As the run summed them up, or as far as it has come."""
    if run.ending is not None:
        return dict(run.ending.seconds)
    seconds: dict[str, float] = {}
    for name, spent in run.stages:
        seconds[name] = seconds.get(name, 0.0) + spent
    return seconds


def funnel_steps(run: TracedRun) -> list[FunnelLine]:
    """From the space to the finalists: what each stage passed on, and what fell before it."""
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


def progress_of(run: TracedRun) -> list[Far]:
    """How far the run was after each of its trials."""
    found: list[Far] = []
    timed = failed = 0
    for trial in run.trials:
        ran = sum(isinstance(row.outcome, Timing) for row in trial.rows)
        timed, failed = timed + ran, failed + len(trial.rows) - ran
        compiled = sum(len(batch.rows) for batch in run.batches if batch.t <= trial.t)
        found.append(Far(trial.t, compiled, timed, failed, trial.best_us, trial.expected_gain))
    return found


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
