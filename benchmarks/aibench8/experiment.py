"""Experiment on a kernel of AI-Bench8: tuned in three ways, checked, raced with its baseline."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.measure.timing.clock import Clock, GpuClock, Subject
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.measure.timing.race import Race
from asmtune.tuning.request import TuningResult
from asmtune.workshop.kernel_checks.reports import as_tuple
from asmtune.workshop.kernel_checks.tolerances import excess
from benchmarks.aibench8.baselines import baseline_of, exact
from benchmarks.aibench8.summary import BASELINE
from benchmarks.aibench8.tasks import Task, contract_of, without_contract
from benchmarks.aibench8.tuning import Search, TaskTuner
from benchmarks.harness import loaded
from tests.kernels.accuracy import case_of


@dataclass(frozen=True)
class Plan:
    """Settings by which each kernel is measured.

    Attributes:
        tuner: tunes the problems.
        target: the GPU, to compile for.
        policy: timing policy of the final race.
        seeds: how often each way to tune is drawn; the first draw of each always runs.
        device: device of the tensors.
    """

    tuner: TaskTuner
    target: Target
    policy: TimingPolicy
    seeds: int
    device: str = "cuda"

    def result(self, task: Task, ends_s: float) -> dict[str, Any]:
        """Measure everything of a kernel.

        Args:
            task: the kernel.
            ends_s: time by `time.monotonic` after which no further draws begin.

        Raises:
            AsmtuneError: it cannot be tuned.
        """
        began = time.monotonic()
        problem = task.problem(self.device)
        search = Search.of(task, problem)
        masked = replace(search, problem=without_contract(problem))
        configs = len(list(search.space.configs(**problem.shape)))
        found = self._draws(search, masked, configs, ends_s)
        ours = _Ours(self, task, as_tuple(task.module.reference(problem.arguments)))
        problems = {"full": problem, "contract_off": masked.problem, "asm_off": problem}
        entrants = [
            *untuned(task, self.device),
            ours.entrant("dispatch_off", problem, search.space.first(**problem.shape)),
            *(
                ours.entrant(bar, problems[bar], _winner(draw), seed)
                for bar, draws in found.items()
                for seed, draw in enumerate(draws)
            ),
        ]
        rows = race(entrants, GpuClock(self.policy), self.policy)
        return {
            **task.facts,
            "contract": contract_of(problem),
            "configs": configs,
            "race": rows,
            "tuning": {bar: [_facts(draw) for draw in draws] for bar, draws in found.items()},
            "seconds": round(time.monotonic() - began, 1),
        }

    def _draws(
        self, search: Search, masked: Search, configs: int, ends_s: float
    ) -> dict[str, list[TuningResult]]:
        """Tune by each bar's way, each with as many seeds, until the time is up."""
        found: dict[str, list[TuningResult]] = {"full": [], "contract_off": [], "asm_off": []}
        for seed in range(self.seeds):
            full = self.tuner.tuned(search, "full", seed)
            found["full"].append(full)
            found["contract_off"].append(self.tuner.tuned(masked, "contract_off", seed))
            found["asm_off"].append(self.tuner.by_chance(search, full.timed, seed))
            # Where all were timed, any order of them finds the same.
            if full.timed >= configs or time.monotonic() >= ends_s:
                break
        return found


def _winner(found: TuningResult) -> Config:
    assert found.record is not None  # nobody else tunes it
    return found.record.winner


def _facts(found: TuningResult) -> dict[str, Any]:
    counts = {"compiled": found.compiled, "timed": found.timed}
    return {"winner": _winner(found).to_dict(), "seconds": round(found.seconds, 2), **counts}


@dataclass(frozen=True)
class _Ours:
    """Maker of entrants of our kernel."""

    plan: Plan
    task: Task
    expected: Sequence[torch.Tensor]

    def entrant(
        self, bar: str, problem: Problem, config: Config, seed: int | None = None
    ) -> Entrant:
        return Entrant(
            bar=bar,
            config=config,
            launch=compiled(problem, config, self.plan.target, self.plan.tuner.settings),
            outputs=[problem.arguments[name] for name in self.task.module.OUTPUTS],
            expected=self.expected,
            tolerances=case_of(self.task.name).on_gpu,
            seed=seed,
        )


def untuned(task: Task, device: str) -> list[Entrant]:
    """Make the entrants of the baseline."""
    module, inputs = baseline_of(task.name), task.inputs(device)
    problem, expected = module.problem(inputs), exact(task, inputs)
    return [
        Entrant(
            bar=BASELINE,
            config=config,
            launch=plain(problem, config),
            outputs=[problem.arguments[name] for name in module.OUTPUTS],
            expected=expected,
            tolerances=case_of(task.name).on_gpu,
        )
        for config in module.CONFIGS
    ]


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
    found = loaded(problem, config, target, settings)
    if isinstance(found, Failure):
        return found

    def launch() -> None:
        found.prepare()
        found.run()

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
