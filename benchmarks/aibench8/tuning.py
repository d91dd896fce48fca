"""Tuning of one problem: as users tune, and with the ranking left to chance."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, cast

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.problem import Problem
from asmtune.core.records.tuned import TuneRecord
from asmtune.core.space.space import Space
from asmtune.tuning.options import Effort, TuneOptions
from asmtune.tuning.request import TuningResult, key_of
from asmtune.tuning.session import Opener
from asmtune.tuning.tuner import Tuner
from benchmarks.aibench8.tasks import Task

if TYPE_CHECKING:
    from asmtune.tuning.options import Choices


@dataclass(frozen=True)
class Tuning:
    """A finished run.

    Attributes:
        winner: the config that it would launch.
        timed: configs tried on the GPU.
        summary: the run for the results, every config's time among it.
    """

    winner: Config
    timed: int
    summary: dict[str, Any]


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

    def options(self, effort: Effort, seed: int = 0) -> TuneOptions:
        """Give the options for an effort, ignoring what the store holds."""
        given = {**self.choices, "effort": effort, "seed": seed, "force": True}
        return TuneOptions.of(cast("Choices", given))

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

    def tuned(self, search: Search, run: str, seed: int) -> Tuning:
        """Tune as `asmtune.tune` does, without other runs' records.

        Args:
            search: the request to tune.
            run: names the run's own store, with the seed.
            seed: of the search.

        Raises:
            AsmtuneError: it cannot be tuned.
        """
        return self._run(search, f"{run}{seed}", search.options(self.effort, seed))

    def by_chance(self, search: Search, timings: int, seed: int) -> Tuning:
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
        effort = replace(self.effort, name="chance", strategy="exhaustive", scorer="chance", caps=0)
        return self._run(drawn_search, f"chance{seed}", search.options(effort, seed))

    def _run(self, search: Search, run: str, options: TuneOptions) -> Tuning:
        problem = search.problem
        # A store of its own: a run must not begin with what another one timed.
        store = self.settings.cache_dir / f"{problem.name}-{run}.sqlite"
        settings = replace(self.settings, store_url=str(store))
        tuner = replace(Tuner.open(self.device, options, settings), opener=self.opener)
        result = tuner.resolve(tuner.request(problem, key_of(problem, self.device), search.space))
        assert result.record is not None  # nobody else tunes it
        return Tuning(result.record.winner, result.timed, _summary(result, result.record))


def _summary(result: TuningResult, record: TuneRecord) -> dict[str, Any]:
    ranked = sorted(record.measurements, key=lambda m: m.median_us)
    return {
        "winner": record.winner.to_dict(),
        "seconds": round(result.seconds, 2),
        "compiled": result.compiled,
        "timed": result.timed,
        "candidates_us": {str(m.config): round(m.median_us, 3) for m in ranked},
        "failures": {str(config): str(failure) for config, failure in record.failures},
    }
