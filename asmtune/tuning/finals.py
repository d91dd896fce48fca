"""The last rounds: finalists are timed afresh, and the winner is chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from asmtune.base.errors import MeasureError
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.core.records.verdicts import Verdict
from asmtune.measure.bench.base import Outcome
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.measure.timing.race import winner
from asmtune.tuning.objective import Costs, Objective

_WARP_SIZE: Final = 32
_REGISTER_BYTES: Final = 4


@dataclass(frozen=True)
class FinalDecision:
    """The result of the last rounds.

    Attributes:
        winner: the config to launch.
        outcomes: timings or failures of the finalists, in their order.
        costs: costs of those that ran, if more than time counts; else empty.
        best_config: the best finalist that is no alternative; None if more than time counts.
    """

    winner: Measurement
    outcomes: tuple[Outcome, ...]
    costs: tuple[Costs, ...] = ()
    best_config: Config | None = None

    def measurement(self, config: Config) -> Measurement | None:
        """Return a finalist's timing; None if it has none."""
        outcome = dict(self.outcomes).get(config)
        return outcome if isinstance(outcome, Measurement) else None


@dataclass(frozen=True)
class Finals:
    """Chooses the winner among the finalists: times them afresh, interleaved, by `final`.

    `energy` measures millijoules of a launch; None where it cannot. `policy` defines a tie.
    """

    final: Callable[[Sequence[Verdict]], list[Outcome]]
    energy: Callable[[Verdict], float | None]
    policy: TimingPolicy
    objective: Objective

    def decide(self, finalists: Sequence[Verdict], default: Config) -> FinalDecision:
        """Time the finalists, the default among them if it can run, and pick the best.

        Raises:
            MeasureError: none of them can be timed.
            InputError: the objective has energy, and the GPU has no counter of it.
        """
        outcomes = self.final(finalists)
        timed = [m for _, m in outcomes if isinstance(m, Measurement)]
        by_config = {verdict.config: verdict for verdict in finalists}
        if self.objective.only_time:

            def cost(config: Config) -> tuple[float, float]:
                return _resources(by_config[config])

            best = winner(timed, cost, self.policy)
            configs = [m for m in timed if m.config.alternative is None]
            fallback = best if not configs else winner(configs, cost, self.policy)
            return FinalDecision(best, tuple(outcomes), best_config=fallback.config.plain)
        if not timed:
            raise MeasureError("no finalist could be timed; see the failures of the run")
        costs = [self._costs(m, by_config[m.config]) for m in timed]
        base = next((c for c in costs if c.config == default), costs[0])
        sums = dict(zip((m.config for m in timed), self.objective.sums(costs, base), strict=True))
        best = min(timed, key=lambda m: (sums[m.config], m.median_us))
        return FinalDecision(best, tuple(outcomes), tuple(costs))

    def _costs(self, measurement: Measurement, verdict: Verdict) -> Costs:
        energy = self.energy(verdict) if self.objective.needs_energy else None
        features: Mapping[str, float] = verdict.features or {}
        flops = features.get("program_flops", 0.0) * features.get("programs", 0.0)
        held = memory_bytes(verdict)
        time_us, error = measurement.median_us, measurement.error
        return Costs(verdict.config, time_us, energy, held, flops or None, error)


def named_for_best(decision: FinalDecision) -> FinalDecision:
    """Name each alternative after the best config, which is launched where the name is unknown.

    A policy's ties have decided already: an alternative has won where no config is as good.
    """
    best = decision.best_config
    if best is None:
        return decision

    def named(config: Config) -> Config:
        return config if config.alternative is None else best.with_alternative(config.alternative)

    def of(outcome: Measurement | Failure) -> Measurement | Failure:
        if isinstance(outcome, Failure):
            return outcome
        return replace(outcome, config=named(outcome.config))

    outcomes = tuple((named(config), of(outcome)) for config, outcome in decision.outcomes)
    winner = replace(decision.winner, config=named(decision.winner.config))
    return FinalDecision(winner, outcomes, decision.costs)


def memory_bytes(verdict: Verdict) -> int:
    """Return the bytes of registers and shared memory that one program of a config holds."""
    features: Mapping[str, float] = verdict.features or {}
    threads = _WARP_SIZE * int(features.get("num_warps", verdict.config.num_warps))
    registers = int(features.get("regs_per_thread", 0)) * threads * _REGISTER_BYTES
    return registers + int(features.get("shared_bytes", 0))


def _resources(verdict: Verdict) -> tuple[float, float]:
    """Return registers a thread and shared memory: of equals, the one with fewer is launched.

    Of a config and an alternative that are equal, the config.
    """
    if verdict.config.alternative is not None:
        return math.inf, math.inf
    features: Mapping[str, float] = verdict.features or {}
    return features.get("regs_per_thread", 0.0), features.get("shared_bytes", 0.0)
