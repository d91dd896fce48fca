"""Tuning of one problem: as users tune, and with the ranking left to chance."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from asmtune.base.settings import Settings
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.tuning.options import Effort, TuneOptions
from asmtune.tuning.request import TuningResult, key_of
from asmtune.tuning.session import Opener
from asmtune.tuning.tuner import Tuner
from benchmarks.aibench8.tasks import Task


@dataclass(frozen=True)
class Search:
    """The request to tune a problem.

    Attributes:
        problem: a launch.
        space: its configs.
        choices: tuning options, as the kernel's own decorator has them.
    """

    problem: Problem
    space: Space
    choices: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, problem: Problem) -> Self:
        """Make the search that the kernel's own public function would run, without its vendor."""
        module = task.module
        choices = {**module._tuned.options.choices, "alternatives": None}
        return cls(problem, module.space(), choices)


@dataclass(frozen=True)
class TaskTuner:
    """Tuner of the benchmark's problems.

    Attributes:
        device: the GPU's name.
        effort: effort, with the clock that also times the final race.
        settings: settings with the folder of compiled configs, which all runs share.
        opener: opens what checks and times; this GPU where it is None.
    """

    device: str
    effort: Effort
    settings: Settings
    opener: Opener | None = None

    def tuned(self, search: Search, run: str, seed: int) -> TuningResult:
        """Tune as `asmtune.tune` does, without other runs' records.

        Args:
            search: the request to tune.
            run: names the run's own store, with the seed.
            seed: of the search.

        Raises:
            AsmtuneError: it cannot be tuned.
        """
        return self._run(search, f"{run}{seed}", self.effort, seed)

    def by_chance(self, search: Search, timings: int, seed: int) -> TuningResult:
        """Time as many configs, drawn at random; no assembly is looked at.

        The default is timed as usual. Caps on registers, which are read off machine code, are
        not tried.

        Raises:
            AsmtuneError: it cannot be tuned.
        """
        shape = search.problem.shape
        default = search.space.first(**shape)
        others = [config for config in search.space.configs(**shape) if config != default]
        drawn = random.Random(seed).sample(others, min(timings - 1, len(others)))
        drawn_search = replace(search, space=Space.from_configs([default, *drawn]))
        effort = replace(self.effort, name="chance", strategy="exhaustive", scorer="chance")
        return self._run(drawn_search, f"chance{seed}", effort, seed)

    def _run(self, search: Search, run: str, effort: Effort, seed: int) -> TuningResult:
        problem = search.problem
        # A store of its own: a run must not begin with what another one timed.
        store = self.settings.cache_dir / f"{problem.name}-{run}.sqlite"
        settings = replace(self.settings, store_url=str(store))
        given: Any = {**search.choices, "effort": effort, "seed": seed, "force": True}
        tuner = Tuner.open(self.device, TuneOptions.of(given), settings)
        tuner = replace(tuner, opener=self.opener)
        return tuner.resolve(tuner.request(problem, key_of(problem, self.device), search.space))
