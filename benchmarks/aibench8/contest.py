"""Final race: every entrant's launch, checked, then timed interleaved with the baseline's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from asmtune.base.settings import Settings
from asmtune.compile.load import load
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.measure.timing.clock import Clock, Subject
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.measure.timing.race import Race
from asmtune.workshop.kernel_checks.tolerances import excess


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A launch in the race.

    Attributes:
        bar: name of its bar in the figure.
        config: the config that it is launched with.
        launch: queues it once; a failure if it cannot be launched.
        outputs: the tensors that it writes.
        expected: values that the outputs must hold, in float64.
        tolerances: rows of the table of tolerances by dtype, where not the dtype's own.
        seed: seed of the random draw; None for other bars.
    """

    bar: str
    config: Config
    launch: Callable[[], Any] | Failure
    outputs: Sequence[torch.Tensor]
    expected: Sequence[torch.Tensor]
    tolerances: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None


def plain(problem: Problem, config: Config) -> Callable[[], Any]:
    """Launch by Triton itself."""
    arguments = {**problem.arguments, **config.all_kwargs()}
    return lambda: problem.kernel[problem.grid](**arguments)


def compiled(
    problem: Problem, config: Config, target: Target, settings: Settings
) -> Callable[[], Any] | Failure:
    """Launch the very binary that the tuner timed, from its folder."""
    lowering = Lowering(problem, target, settings.compile_timeout_s)
    request = lowering.request(config)
    if isinstance(request, Failure):
        return request
    artifact = compile_one(request, settings)
    if isinstance(artifact, Failure):
        return artifact
    loaded = load(lowering, config, artifact)
    if isinstance(loaded, Failure):
        return loaded

    def launch() -> None:
        loaded.prepare()
        loaded.run()

    return launch


def race(entrants: Sequence[Entrant], clock: Clock, policy: TimingPolicy) -> list[dict[str, Any]]:
    """Return a row for each entrant: its time or its error; only correct ones are timed."""
    rows = [_checked(entrant) for entrant in entrants]
    right = [place for place, row in enumerate(rows) if "failed" not in row]
    subjects = [_subject(entrants[place]) for place in right]
    for place, (_, outcome) in zip(right, Race(clock, policy).final(subjects), strict=True):
        rows[place] |= _timed(outcome)
    return rows


def _checked(entrant: Entrant) -> dict[str, Any]:
    """Return an entrant's row as far as its outputs tell."""
    row: dict[str, Any] = {"bar": entrant.bar, "config": entrant.config.to_dict()}
    if entrant.seed is not None:
        row["seed"] = entrant.seed
    launch = entrant.launch
    if isinstance(launch, Failure):
        return {**row, "failed": str(launch)}

    def error() -> float:
        for output in entrant.outputs:
            output.zero_()
        launch()
        pairs = zip(entrant.outputs, entrant.expected, strict=True)
        return max(excess(got, want, entrant.tolerances) for got, want in pairs)

    worst = guarded("launch", error)
    if isinstance(worst, Failure):
        return {**row, "failed": str(worst)}
    if not worst <= 1.0:
        return {
            **row,
            "failed": f"its outputs are wrong: {min(worst, 1e300):.3g} times the tolerance",
        }
    return {**row, "error_by_tolerance": round(worst, 4)}


def _subject(entrant: Entrant) -> Subject:
    launch = entrant.launch
    assert not isinstance(launch, Failure)

    def run() -> None:
        launch()

    return Subject(entrant.config, run, lambda: None)


def _timed(outcome: Measurement | Failure) -> dict[str, Any]:
    if isinstance(outcome, Failure):
        return {"failed": str(outcome)}
    figures = {"p20_us": outcome.p20_us, "p50_us": outcome.median_us, "p80_us": outcome.p80_us}
    rounded = {name: round(value, 4) for name, value in figures.items()}
    return {**rounded, "samples": len(outcome.samples_us)}
