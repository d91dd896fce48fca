"""The stages of a run once the bench is open: search and finals, which name the winner."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from asmtune.base.errors import (
    CompileError,
    CompileLimitError,
    MeasureError,
    MemoryShortError,
    UnreadableError,
)
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import foreign_value
from asmtune.core.config import Config
from asmtune.core.failures import of_one_config
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.tuned import Measurement, Outcome
from asmtune.core.records.verdicts import Verdict
from asmtune.ir.ttir.slots import ConfigSlots
from asmtune.measure.bench.base import Bench, TimingCandidate
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.measure.timing.race import winner
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import ProblemAnalysis
from asmtune.tuning.background_compiler import BackgroundCompiler
from asmtune.tuning.listener import RunWatch
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.search.base import Limits, SearchResult, Strategy
from asmtune.tuning.search.loop import batch_of, run
from asmtune.tuning.search.state import SearchState

_UNSAVED: Final = Failure(
    "check",
    "unsaved",
    "its IR uses arguments in another way than all configs looked at before the search, so they "
    "are not saved; tune its values of the parameters apart",
)


@dataclass
class BenchTimer:
    """Times verdicts of one problem; the default config first, since it gives the reference.

    `covers` says whether the bench saves and checks all that a config may write, `slots` where its
    programs write. `measurements` holds timings of all trials by config.
    """

    bench: Bench
    cache: ArtifactCache
    default: Config
    covers: Callable[[Config], bool]
    slots: Callable[[Config], ConfigSlots]
    measurements: dict[Config, Measurement] = field(default_factory=dict)
    _begun: bool = False

    def trial(self, verdicts: Sequence[Verdict]) -> list[Outcome]:
        """Return a timing or a failure for each verdict, in order.

        Raises:
            MemoryShortError: there is no memory to run the default config and check it.
        """
        entrants, outcomes = self._entrants(verdicts)
        default = next((e for e in entrants if e.config == self.default), None)
        if default is not None and not self._begun:
            self._begun = True
            entrants.remove(default)
            outcomes[default.config] = outcome = self.bench.begin(default)[1]
            if isinstance(outcome, Failure) and outcome.kind == "memory":
                first = outcome.detail.splitlines()[0]
                raise MemoryShortError(
                    f"the default config cannot be timed or checked: {first}; free "
                    "memory of the GPU, or tune it before with `asmtune tune`"
                )
        outcomes.update(self.bench.trial(entrants) if entrants else ())
        results = [(verdict.config, outcomes[verdict.config]) for verdict in verdicts]
        self.measurements.update((c, o) for c, o in results if isinstance(o, Measurement))
        return results

    def final(self, verdicts: Sequence[Verdict]) -> list[Outcome]:
        """Time finalists afresh, interleaved."""
        entrants, outcomes = self._entrants(verdicts)
        outcomes.update(self.bench.final(entrants) if entrants else ())
        return [(verdict.config, outcomes[verdict.config]) for verdict in verdicts]

    def _entrants(
        self, verdicts: Sequence[Verdict]
    ) -> tuple[list[TimingCandidate], dict[Config, Measurement | Failure]]:
        entrants: list[TimingCandidate] = []
        lost: dict[Config, Measurement | Failure] = {}
        for verdict in verdicts:
            artifact = self.cache.get(verdict.artifact or "")
            if not self.covers(verdict.config.plain):
                lost[verdict.config] = _UNSAVED
            elif isinstance(artifact, Artifact):
                # An alternative has no slots of its own: it writes what the default writes.
                is_config = verdict.config.alternative is None
                asked = partial(self.slots, verdict.config) if is_config else ConfigSlots
                slots = of_one_config("launch", "grid", asked)
                if isinstance(slots, Failure):
                    lost[verdict.config] = slots
                else:
                    entrants.append(TimingCandidate(verdict.config, artifact, slots))
            else:
                lost[verdict.config] = artifact or Failure(
                    "launch", "lost", "its artifact is no longer in the cache"
                )
        return entrants, lost


@dataclass(frozen=True)
class FinalDecision:
    """Holds the result of the last rounds.

    Attributes:
        winner: the timing of the config to launch.
        outcomes: timings or failures of the finalists, in their order.
    """

    winner: Measurement
    outcomes: tuple[Outcome, ...]


def decide(
    finalists: Sequence[Verdict], outcomes: Sequence[Outcome], policy: TimingPolicy
) -> FinalDecision:
    """Choose the winner of finalists that were timed afresh.

    An alternative wins where no config is as good. Each is named after the best config, which is
    launched where the name is unknown.

    Raises:
        MeasureError: none of them could be timed.
    """
    by_config = {verdict.config: verdict for verdict in finalists}

    def cost(config: Config) -> tuple[float, float]:
        if config.alternative is not None:
            return math.inf, math.inf
        features: Mapping[str, float] = by_config[config].features or {}
        return features.get("regs_per_thread", 0.0), features.get("shared_bytes", 0.0)

    timed = [m for _, m in outcomes if isinstance(m, Measurement)]
    best = winner(timed, cost, policy)
    configs = [m for m in timed if m.config.alternative is None]
    launched = (winner(configs, cost, policy) if configs else best).config.plain

    def named(config: Config) -> Config:
        name = config.alternative
        return config if name is None else launched.with_alternative(name)

    renamed = [
        (named(c), replace(o, config=named(c)) if isinstance(o, Measurement) else o)
        for c, o in outcomes
    ]
    return FinalDecision(replace(best, config=named(best.config)), tuple(renamed))


@dataclass(frozen=True)
class SearchSetup:
    """The parts of a search that is about to begin."""

    state: SearchState
    strategy: Strategy
    compiler: BackgroundCompiler
    limits: Limits

    @property
    def has_model(self) -> bool:
        """Return whether a scorer chooses what to compile."""
        return self.strategy.name == "model"

    def first_batch(self) -> list[Config]:
        """Return what the search will compile first."""
        proposal = self.strategy.propose(self.state)
        return batch_of(proposal, self.state, self.limits, self.state.opening())


@dataclass(frozen=True)
class Stages:
    """The stages of a run, over one state."""

    funnel: Funnel
    front: ProblemAnalysis
    state: SearchState
    timer: BenchTimer
    options: TuneOptions
    watch: RunWatch

    def search(self, setup: SearchSetup) -> str:
        """Compile and time until no further gain is expected; return why the search ended.

        Raises:
            CompileError: nothing compiles.
            MeasureError: nothing that compiled can be launched, or is right.
        """
        compiler, limits = setup.compiler, setup.limits
        with self.watch.timed_stage("search"), compiler:
            ended = run(setup.strategy, self.state, compiler, self.timer, limits, self.watch)
        if not ended.finalists:
            raise self._nothing(ended)
        return ended.reason

    def finals(self) -> FinalDecision:
        """Time the fastest configs and the default afresh; one of them wins.

        Raises:
            MeasureError: none of them can be timed.
        """
        with self.watch.timed_stage("finals"):
            finalists = self._finalists()
            entrants = [*finalists, *self._alternatives(finalists)]
            outcomes = self.timer.final(entrants)
            decision = decide(entrants, outcomes, self.options.effort.policy)
        self.watch.decided(decision.outcomes)
        self.front.hand_to_triton(decision.winner.config)
        return decision

    def _alternatives(self, finalists: Sequence[Verdict]) -> list[Verdict]:
        """Return the user's functions, each in the place of a finalist."""
        return [
            replace(base, config=base.config.with_alternative(name))
            for base in finalists[:1]
            for name in self.options.alternatives
        ]

    def _finalists(self) -> list[Verdict]:
        """Return the fastest of different code, and the default; equal binaries share samples."""
        most = self.options.effort.limits.finalists
        chosen: dict[object, Verdict] = {}
        for verdict in self.state.finalists(len(self.state.timings)):
            config = verdict.config
            code = self.timer.measurements[config].samples_us
            if config == self.state.default:
                chosen[code] = verdict
            elif len(chosen) < most:
                chosen.setdefault(code, verdict)
        return list(chosen.values())

    def _nothing(self, ended: SearchResult) -> CompileError | MeasureError:
        problem, target = self.front.problem, self.funnel.target
        launched = any(f.stage in ("launch", "check") for f in self.state.failures.values())
        stages = {failure.stage for failure in self.state.failures.values()}
        kinds = {failure.kind for failure in self.state.failures.values()}
        kind: type[CompileError | MeasureError] = MeasureError if launched else CompileError
        if stages and stages <= {"start", "read"}:
            kind = UnreadableError
        elif not launched and kinds & {"timeout", "memory"}:
            kind = CompileLimitError
        text = f"no config of {problem.name} can run on {target.name}: {ended.reason}"
        broken = [(c, f) for c, f in self.state.failures.items() if f.kind == "inaccurate"]
        if broken:
            config, failure = broken[0]
            text = (
                f"no config of {problem.name} keeps the accuracy bound: {len(broken)} of "
                f"{self.state.trials} tried break it, such as {config}, whose {failure.detail}; "
                "loosen the bound, or add more exact configs to the space"
            )
        foreign = foreign_value(problem.arguments) if "kernel" in kinds else None
        text += f"; {foreign}" if foreign else ""
        self.watch.note(text)
        return kind(text)
