"""`asmtune tune --sweep`: times some shapes of a range, and says what the others get."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Group
from rich.text import Text

from asmtune.base.errors import InputError
from asmtune.base.settings import Settings
from asmtune.cli.output import write_result
from asmtune.core.kernel_module import KernelModule, Shape
from asmtune.report.cells import ReportTable, plain_table
from asmtune.studies.sweep import Sweep, budget_s, is_narrow, parse_sweep, shapes_of_ranges

if TYPE_CHECKING:
    from asmtune.core.hardware.model import Target
    from asmtune.tuning.options import TuneOptions


@dataclass(frozen=True)
class SweepRequest:
    """The options of the same names, as they were given."""

    sweep: str
    budget: str | None
    dtype: str | None
    output: Path | None
    as_json: bool = False


def run_sweep(
    module: KernelModule,
    reference: str,
    request: SweepRequest,
    options: TuneOptions,
    ranked_by: Target | None,
) -> None:
    """Tune shapes of a range until the rest is sure or the time is over; then print all.

    Raises:
        InputError: the range or the budget is malformed, or the budget is missing.
        MeasureError: there is no GPU.
    """
    from asmtune.report.tuning import TuningProgress
    from asmtune.store.safe_store import existing_store
    from asmtune.studies.tuning_queue import TuningQueue, open_machine

    if request.budget is None:
        raise InputError("--sweep: say how long it may take, as in --budget 60s")
    seconds = budget_s(request.budget)
    shapes = shapes_of_ranges(parse_sweep(request.sweep, module))
    queue = TuningQueue.of(module, reference, request.dtype)
    queue.check([shapes[0], shapes[-1]])
    interrupted = False
    with TuningProgress(len(shapes), options.effort.limits.seconds) as progress:
        machine = open_machine(options, progress, ranked_by)
        sweep = Sweep.of(queue, machine.device, shapes, existing_store(Settings.from_environment()))
        try:
            for result in sweep.run(machine, seconds):
                progress.finished(result)
        except KeyboardInterrupt:
            interrupted = True
    sweep.fit()
    shown = json.dumps(sweep_json(sweep), indent=1) if request.as_json else _report(sweep)
    write_result(shown, request.output)
    if interrupted:
        raise typer.Exit(130)
    if any(result.outcome == "failed" for result in sweep.results):
        raise typer.Exit(1)


def sweep_json(sweep: Sweep) -> dict[str, Any]:
    """Return what a sweep has timed and what it expects as values of JSON."""
    shares = sweep.shares()
    return {
        "shapes": len(sweep.shapes),
        "tuned": [
            {
                "shape": dict(result.request.problem.shape),
                "outcome": result.outcome,
                "config": None if result.record is None else result.record.winner.to_dict(),
                "median_us": None if result.record is None else result.record.median_us,
                "error": result.error,
            }
            for result in sweep.results
        ],
        "used": len(sweep.records),
        "expected_share": statistics.geometric_mean(shares) if shares else None,
        "worst_expected_share": min(shares, default=None),
        "sure": is_narrow(sweep),
        "pieces": [
            {"config": config.to_dict(), "from": dict(own[0]), "to": dict(own[-1])}
            for config, own in sweep.pieces()
        ],
    }


def _report(sweep: Sweep) -> Group:
    parts: list[Any] = []
    if sweep.results:
        parts.append(_tuned_table(sweep))
    pieces = plain_table("configs over the range", ("from", "to", "shapes", "config"), 4)
    for config, own in sweep.pieces():
        pieces.add_row(_words(own[0]), _words(own[-1]), str(len(own)), str(config))
    failed = [
        Text(f"{_words(one.request.problem.shape)}: {one.error}", "red")
        for one in sweep.results
        if one.outcome == "failed"
    ]
    return Group(*parts, *([pieces] if sweep.pieces() else []), *failed, Text(_summary(sweep)))


def _tuned_table(sweep: Sweep) -> ReportTable:
    table = plain_table("shapes timed", ("shape", "outcome", "us", "config"), 4)
    for result in sweep.results:
        record = result.record
        us = "" if record is None or record.median_us is None else f"{record.median_us:.4g}"
        config = "" if record is None else str(record.winner)
        table.add_row(_words(result.request.problem.shape), result.outcome, us, config)
    return table


def _summary(sweep: Sweep) -> str:
    tuned = sum(result.outcome == "tuned" for result in sweep.results)
    stored = len(sweep.records) - sum(one.record is not None for one in sweep.results)
    done = f"{tuned} shape{'' if tuned == 1 else 's'} tuned now, {stored} stored before"
    if isinstance(sweep.model, str):
        return f"{done}; nothing can be interpolated: {sweep.model}"
    shares: Sequence[float] = sweep.shares()
    expected = f"{statistics.geometric_mean(shares):.3f}, worst {min(shares):.3f}"
    end = (
        'on_miss="interpolate" is sure of all'
        if is_narrow(sweep)
        else "the same command goes on with those that are not sure"
    )
    count = len(sweep.shapes)
    return f"{done}; expected share of the best over {count} shapes {expected}; {end}"


def _words(shape: Mapping[str, Any] | Shape) -> str:
    return " ".join(f"{name}={value}" for name, value in shape.items())
