"""The stages of a run once the bench is open: search, caps and finals, which name the winner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from asmtune.base.errors import CompileError, MeasureError
from asmtune.compile.artifacts import ArtifactCache
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.tuned import Measurement
from asmtune.core.records.verdicts import Verdict
from asmtune.measure.bench.base import Bench, Outcome, TimingCandidate
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.measure.timing.race import winner
from asmtune.measure.timing.statistics import prepare
from asmtune.predict.prune.caps import caps_for
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import Front
from asmtune.tuning.background_compiler import BackgroundCompiler, StragglerTimer
from asmtune.tuning.objective import Costs, Objective
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.run_log import RunWatch
from asmtune.tuning.search.base import Ended, Predictor
from asmtune.tuning.search.loop import run
from asmtune.tuning.search.state import State
from asmtune.tuning.search.strategies import make_strategy

_WARP_SIZE: Final = 32
_REGISTER_BYTES: Final = 4


@dataclass(frozen=True)
class FinalDecision:
    """The result of the last rounds.

    Attributes:
        winner: the config to launch.
        outcomes: timings or failures of the finalists, in their order.
        costs: costs of those that ran, if more than time counts; else empty.
    """

    winner: Measurement
    outcomes: tuple[Outcome, ...]
    costs: tuple[Costs, ...] = ()

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
            best = winner(timed, lambda config: _resources(by_config[config]), self.policy)
            return FinalDecision(best, tuple(outcomes))
        if not timed:
            raise MeasureError("no finalist could be timed; see the failures of the run")
        costs = [self._costs(m, by_config[m.config]) for m in timed]
        base = next((c for c in costs if c.config == default), costs[0])
        sums = dict(zip((m.config for m in timed), self.objective.sums(costs, base), strict=True))
        best = min(timed, key=lambda m: (sums[m.config], m.median_us))
        return FinalDecision(best, tuple(outcomes), tuple(costs))

    def _costs(self, measurement: Measurement, verdict: Verdict) -> Costs:
        energy = self.energy(verdict) if self.objective.needs_energy else None
        return Costs(verdict.config, measurement.median_us, energy, memory_bytes(verdict))


def memory_bytes(verdict: Verdict) -> int:
    """Return the bytes of registers and shared memory that one program of a config holds."""
    features: Mapping[str, float] = verdict.features or {}
    threads = _WARP_SIZE * int(features.get("num_warps", verdict.config.num_warps))
    registers = int(features.get("regs_per_thread", 0)) * threads * _REGISTER_BYTES
    return registers + int(features.get("shared_bytes", 0))


def _resources(verdict: Verdict) -> tuple[float, float]:
    """Return registers a thread and shared memory: of equals, the one with fewer is launched."""
    features: Mapping[str, float] = verdict.features or {}
    return features.get("regs_per_thread", 0.0), features.get("shared_bytes", 0.0)


@dataclass
class BenchTimer:
    """Times verdicts of one problem; the default config first, since it gives the reference.

    `watch` is called with every outcome as soon as it is known. `measurements` holds timings of
    all trials by config; earlier runs' may be put there.
    """

    bench: Bench
    cache: ArtifactCache
    default: Config
    watch: Callable[[Sequence[Outcome]], None]
    measurements: dict[Config, Measurement] = field(default_factory=dict)
    _begun: bool = False

    def trial(self, verdicts: Sequence[Verdict]) -> list[Outcome]:
        """Return a timing or a failure for each verdict, in order."""
        entrants, outcomes = self._entrants(verdicts)
        default = next((e for e in entrants if e.config == self.default), None)
        if default is not None and not self._begun:
            self._begun = True
            entrants.remove(default)
            outcomes[default.config] = self.bench.begin(default)[1]
        outcomes.update(self.bench.trial(entrants) if entrants else ())
        results = [(verdict.config, outcomes[verdict.config]) for verdict in verdicts]
        self.measurements.update((c, o) for c, o in results if isinstance(o, Measurement))
        self.watch(results)
        return results

    def final(self, verdicts: Sequence[Verdict]) -> list[Outcome]:
        """Time finalists afresh, interleaved."""
        entrants, outcomes = self._entrants(verdicts)
        outcomes.update(self.bench.final(entrants) if entrants else ())
        return [(verdict.config, outcomes[verdict.config]) for verdict in verdicts]

    def energy(self, verdict: Verdict) -> float | None:
        """Measure millijoules of one launch; None if the GPU has no counter."""
        entrants, _ = self._entrants([verdict])
        return self.bench.energy(entrants[0]) if entrants else None

    def _entrants(
        self, verdicts: Sequence[Verdict]
    ) -> tuple[list[TimingCandidate], dict[Config, Measurement | Failure]]:
        entrants: list[TimingCandidate] = []
        lost: dict[Config, Measurement | Failure] = {}
        for verdict in verdicts:
            artifact = self.cache.get(verdict.artifact or "")
            if isinstance(artifact, Artifact):
                entrants.append(TimingCandidate(verdict.config, artifact))
            else:
                lost[verdict.config] = artifact or Failure(
                    "launch", "lost", "its artifact is no longer in the cache"
                )
        return entrants, lost


@dataclass(frozen=True)
class Stages:
    """The stages of a run, over one state."""

    funnel: Funnel
    front: Front
    state: State
    timer: BenchTimer
    options: TuneOptions
    watch: RunWatch

    def search(self, stragglers: StragglerTimer) -> str:
        """Compile and time until no further gain is expected; return why the search ended.

        Raises:
            CompileError: nothing compiles.
            MeasureError: nothing that compiled can be launched, or is right.
        """
        effort = self.options.effort
        predictor = Predictor(self.funnel.scorer, self.funnel.target)
        strategy = make_strategy(effort.strategy, self.options.seed, predictor, effort.pace)
        compiler = BackgroundCompiler(self.front, self.funnel.known, stragglers, prepare)
        with self.watch.timed_stage("search"), compiler:
            ended = run(strategy, self.state, compiler, self.timer, effort.limits, self.watch)
        if not ended.finalists:
            raise self._nothing(ended)
        return ended.reason

    def caps(self) -> None:
        """Try caps on the registers of the fastest configs, read off their machine code."""
        effort = self.options.effort
        fastest = self.state.finalists(effort.limits.finalists)
        parents = [verdict for verdict in fastest if verdict.config.maxnreg is None]
        derived = caps_for(parents, self.funnel.cap_source(), effort.caps)
        if not derived:
            return
        with self.watch.timed_stage("caps"):
            verdicts = self.front.verdicts(list(derived), "assembly", self.funnel.known)
            self.state.add_verdicts(verdicts)
            self.watch.batch(verdicts, 0.0)
            outcomes = self.timer.trial([verdict for verdict in verdicts if verdict.kept])
            self.state.add_outcomes(outcomes)
            self.watch.trial(outcomes, None)

    def finals(self) -> FinalDecision:
        """Time the fastest configs and the default afresh; one of them wins.

        Raises:
            MeasureError: none of them can be timed.
        """
        effort = self.options.effort
        finals = Finals(self.timer.final, self.timer.energy, effort.policy, self.options.objective)
        with self.watch.timed_stage("finals"):
            decision = finals.decide(self._finalists(), self.state.default)
        self.watch.decided(decision)
        return decision

    def _finalists(self) -> list[Verdict]:
        """Return the fastest of different code, and the default; equal binaries share samples."""
        most = self.options.effort.limits.finalists
        chosen: dict[object, Verdict] = {}
        for verdict in self.state.finalists(len(self.state.timings)):
            config = verdict.config
            timing = self.timer.measurements.get(config)
            # One of an earlier run has samples of its own.
            code = config if timing is None else timing.samples_us
            if config == self.state.default:
                chosen[code] = verdict
            elif len(chosen) < most:
                chosen.setdefault(code, verdict)
        return list(chosen.values())

    def _nothing(self, ended: Ended) -> CompileError | MeasureError:
        problem, target = self.front.problem, self.funnel.target
        launched = any(f.stage in ("launch", "check") for f in self.state.failures.values())
        kind = MeasureError if launched else CompileError
        text = f"no config of {problem.name} can run on {target.name}: {ended.reason}"
        self.watch.note(text)
        return kind(text)
