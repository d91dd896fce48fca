"""Experiment on a kernel of AI-Bench8: tuned in three ways, checked, raced with its baseline."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.measure.timing.clock import GpuClock
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.workshop.kernel_checks.reports import as_tuple
from benchmarks.aibench8.baselines import baseline_of, exact
from benchmarks.aibench8.contest import Entrant, compiled, plain, race
from benchmarks.aibench8.summary import BASELINE
from benchmarks.aibench8.tasks import Task, contract_of, without_contract
from benchmarks.aibench8.tuning import Search, TaskTuner, Tuning
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
                ours.entrant(bar, problems[bar], draw.winner, seed)
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
            "tuning": {bar: [draw.summary for draw in draws] for bar, draws in found.items()},
            "seconds": round(time.monotonic() - began, 1),
        }

    def _draws(
        self, search: Search, masked: Search, configs: int, ends_s: float
    ) -> dict[str, list[Tuning]]:
        """Tune by each bar's way, each with as many seeds, until the time is up."""
        found: dict[str, list[Tuning]] = {"full": [], "contract_off": [], "asm_off": []}
        for seed in range(self.seeds):
            full = self.tuner.tuned(search, "full", seed)
            found["full"].append(full)
            found["contract_off"].append(self.tuner.tuned(masked, "contract_off", seed))
            found["asm_off"].append(self.tuner.by_chance(search, full.timed, seed))
            # Where all were timed, any order of them finds the same.
            if full.timed >= configs or time.monotonic() >= ends_s:
                break
        return found


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
