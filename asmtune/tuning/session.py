"""`Session`: one search, from a request to its record.

configs -> sketches of a sample -> [compile a batch | sketch the rest, time the last batch]...
-> finals -> record
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Final

from asmtune.base.text import user_stacklevel
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.load import build_launcher
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Artifact
from asmtune.core.records.tuned import Measurement, TuneRecord
from asmtune.core.records.verdicts import Verdict
from asmtune.core.space.table import SpaceTable
from asmtune.ir.ttir.work import Work
from asmtune.measure.bench.base import Bench, BenchSetup
from asmtune.measure.bench.dedup import open_bench
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.tensors import preserved
from asmtune.measure.timing.race import unsteady
from asmtune.predict.prune.flow import Funnel, steering_notes
from asmtune.predict.prune.front import ProblemAnalysis
from asmtune.predict.prune.places import sampled_works
from asmtune.predict.prune.tiles import HeldTilesWarning
from asmtune.predict.score.scorer import Scorer
from asmtune.predict.score.scorers import for_target
from asmtune.store.trace.run import Ending, Header
from asmtune.tuning.background_compiler import BackgroundCompiler, StragglerTimer
from asmtune.tuning.initial_state import FirstRanking, first_ranking, is_short, own_seeds
from asmtune.tuning.listener import RunWatch, TuningListener, tell_of_failures
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.request import TuningRequest, TuningResult
from asmtune.tuning.search.base import Predictor, Strategy
from asmtune.tuning.search.model import WholeList, make_strategy
from asmtune.tuning.search.state import SearchState
from asmtune.tuning.stages import BenchTimer, FinalDecision, SearchSetup, Stages


class AccuracyWarning(UserWarning):
    """The default config breaks the bound on errors, so that another takes its place."""


MOST_REFUSED: Final = 100
"""Configs refused before compiling whose reasons a record keeps: a space may have very many."""

Opener = Callable[[BenchSetup], Bench]


@dataclass(frozen=True)
class Session:
    """Tunes one request.

    What its funnel has compiled serves all problems of equal specialisation. Its `seeds` are
    configs that were good on other shapes. The `opener` opens the bench, `open_bench` if None.
    """

    funnel: Funnel
    options: TuneOptions
    seeds: tuple[Config, ...] = ()
    listener: TuningListener = field(default_factory=TuningListener)
    opener: Opener | None = None

    def run(self, request: TuningRequest) -> TuningResult:
        """Search, time the finalists afresh, and choose the winner.

        The problem's tensors hold what they held before.

        Raises:
            InputError: space, problem and kernel do not fit.
            CompileError: no config can run.
            ForeignWriteError: launches may change memory that nothing puts back.
            MeasureError: no config that compiled can be launched.
        """
        default = request.space.first(**request.problem.shape)
        stragglers = StragglerTimer(self.funnel.progress, default)
        funnel = replace(self.funnel, scorer=self._scorer(request), progress=stragglers)
        front = funnel.front(request.problem)
        front.warm()
        with ExitStack() as stack:
            header = self._header(request, default)
            watch = stack.enter_context(RunWatch(funnel, header, self.listener))
            hooked = request.is_hooked
            touched = request.problem.arguments.values() if hooked else ()
            # The front end runs hooks, before the bench saves the arguments and after.
            restore = stack.enter_context(preserved(touched))
            with watch.timed_stage("foresee"):
                self._require_repeatable(front.works([default]))
                configs = self._configs(request, funnel, front, watch)
                ranking = first_ranking(funnel, front, configs, self.options.effort, self.seeds)
                stack.callback(ranking.close)
                if (count := len(ranking.verdicts)) < len(configs):
                    watch.note(
                        f"{count:,} of {len(configs):,} configs are searched, drawn at random"
                    )
                state = self._state(request, ranking, front, watch)
                search = self._search(funnel, ranking, state, stragglers, watch)
                stack.callback(search.compiler.close)
                if not hooked:
                    search.compiler.start(search.first_batch())
                works = sampled_works(front, state.configs)
                self._require_repeatable(works)
                effects = _effects(front, works, state.configs, default)
                if not hooked:  # hooks would write to what the bench saves
                    ranking.start()
                restore()
            with watch.timed_stage("open"):
                bench = stack.enter_context(closing(self._bench(front, effects)))
            cache = ArtifactCache.of(funnel.settings)
            covers = partial(_covers, effects, front)
            timer = BenchTimer(bench, cache, default, covers, front.slots)
            stages = Stages(funnel, front, state, timer, self.options, watch)
            ranking.start()
            reason = stages.search(search)
            tell_of_failures(request.key.kernel, state, funnel.settings.compile_memory_bytes)
            ranking.stop()
            for note in funnel.scorer.notes(funnel.target) if search.has_model else ():
                watch.note(note)
            decision = stages.finals()
            for note in (*bench.notes, *self._accuracy_notes(request, state, decision)):
                watch.note(note)
            return self._result(request, stages, decision, reason)

    def _require_repeatable(self, works: Sequence[Work]) -> None:
        """Check that timing changes no memory behind the user's back, before anything runs.

        Raises:
            ForeignWriteError: the kernel may write memory of no argument.
        """
        options = self.options
        places = dict.fromkeys(place for work in works for place in work.foreign_places)
        options.checks.require_repeatable([*places], isolated=options.isolate)

    def _accuracy_notes(
        self, request: TuningRequest, state: SearchState, decision: FinalDecision
    ) -> list[str]:
        """Return remarks on the winner's error, and on a default that breaks the bound, if any."""
        notes = []
        broken = state.failures.get(state.default)
        if broken is not None and broken.kind == "inaccurate":
            notes = [f"the default config's {broken.detail}: the fastest that keeps it wins"]
            message = f"kernel {request.key.kernel}: {notes[0]}"
            warnings.warn(message, AccuracyWarning, stacklevel=user_stacklevel())
        if decision.winner.error is not None:
            text = f"winner: 99% of its outputs are off by {decision.winner.error:.3g} at most"
            notes.append(f"{text}, relative to what they are compared with")
        return notes

    def _scorer(self, request: TuningRequest) -> Scorer:
        """Return the scorer for the request's target and dtypes."""
        scorer = for_target(self.funnel.scorer, self.funnel.target)
        return scorer.for_dtypes(request.problem.dtypes.values())

    def _search(
        self,
        funnel: Funnel,
        ranking: FirstRanking,
        state: SearchState,
        stragglers: StragglerTimer,
        watch: RunWatch,
    ) -> SearchSetup:
        """Choose how to search: a short list is compiled whole, and no model is loaded."""
        options, effort = self.options, self.options.effort
        front = ranking.front
        jobs = front.workers.jobs
        strategy: Strategy
        if whole := is_short(len(state.configs), effort, jobs):
            strategy = WholeList(effort.pace)
            watch.note(
                f"a short list for {jobs} compiles at once: all {len(state.configs)} configs are "
                "compiled without sketches, and timed as they come"
            )
        else:
            predictor = Predictor(funnel.scorer, funnel.target)
            strategy = make_strategy(effort.strategy, options.seed, predictor, effort.pace)
        # The front end runs hooks, which would write to what the bench times.
        hooked = any(config.pre_hook for config in state.configs)
        first = None if hooked else partial(_build_launcher, front)
        compiler = BackgroundCompiler(
            front, funnel.known, stragglers, one_by_one=whole, first=first
        )
        return SearchSetup(state, strategy, compiler, effort.limits)

    def _configs(
        self, request: TuningRequest, funnel: Funnel, front: ProblemAnalysis, watch: RunWatch
    ) -> SpaceTable:
        """Return the configs to search, the default first."""
        searched = funnel.searched(front, request.space)
        for note in searched.notes:
            watch.note(note)
            if searched.space is not request.space:
                message = f"kernel {request.key.kernel}: {note}"
                warnings.warn(message, HeldTilesWarning, stacklevel=user_stacklevel())
        default = request.space.first(**request.problem.shape)
        configs = searched.configs(default, request.problem.shape)
        front.check_grids(configs)
        return configs

    def _state(
        self, request: TuningRequest, ranking: FirstRanking, front: ProblemAnalysis, watch: RunWatch
    ) -> SearchState:
        """Make the state that the search begins with."""
        default = request.space.first(**request.problem.shape)
        configs = [verdict.config for verdict in ranking.verdicts]
        for note in (*_grid_notes(ranking.verdicts), *steering_notes(front.works([default]))):
            watch.note(note)
        seeds = own_seeds(configs, self.seeds)
        return SearchState(ranking.verdicts, default, seeds, later=ranking.later)

    def _bench(self, front: ProblemAnalysis, effects: Effects) -> Bench:
        options = self.options
        setup = BenchSetup(
            # Its own: the front's is busy in another thread while configs are timed.
            lowering=front.new_lowering(),
            effects=effects,
            checks=options.checks,
            policy=options.effort.policy,
            seed=options.seed,
            do_bench=options.do_bench,
            hooks=options.hooks,
            alternatives=options.alternatives,
        )
        if self.opener is not None:
            return self.opener(setup)
        return open_bench(setup, isolate=options.isolate)

    def _header(self, request: TuningRequest, default: Config) -> Header:
        effort = self.options.effort
        return Header(
            kernel=request.problem.name,
            key=request.key,
            reference=request.reference,
            target=self.funnel.target.name,
            effort=asdict(effort),
            strategy=effort.strategy,
            seed=self.options.seed,
            default=default,
            sizes=None if request.reference is None else dict(request.problem.shape),
        )

    def _result(
        self, request: TuningRequest, stages: Stages, decision: FinalDecision, reason: str
    ) -> TuningResult:
        state, watch = stages.state, stages.watch
        finals = {config: o for config, o in decision.outcomes if isinstance(o, Measurement)}
        measured = {**stages.timer.measurements, **finals}
        named = [(config, o) for config, o in decision.outcomes if config.alternative is not None]
        lost = [(config, o) for config, o in named if not isinstance(o, Measurement)]
        refused = [(v.config, v.failure) for v in state.initial.values() if v.failure is not None]
        failures = (*state.failures.items(), *lost, *refused[:MOST_REFUSED])
        record = TuneRecord(
            request.key, decision.winner.config, (*measured.values(),), request.expected, failures
        )
        default = finals.get(state.default)
        ending = Ending(
            winner=record.winner,
            median_us=decision.winner.median_us,
            default_us=None if default is None else default.median_us,
            reason=reason,
            seconds=watch.seconds,
            compiled=state.compiles,
            timed=state.trials,
        )
        remark = unsteady(decision.winner.statistics, self.options.effort.policy)
        if remark:
            watch.note(f"winner: {remark}")
        watch.end(ending)
        return TuningResult(
            request,
            "tuned",
            record,
            run=watch.run,
            default_us=ending.default_us,
            compiled=state.compiles,
            timed=state.trials,
            remark=remark,
        )


def _grid_notes(verdicts: Sequence[Verdict]) -> list[str]:
    """Say how many configs cannot be launched at all, and why the first cannot."""
    lost = [v.failure for v in verdicts if v.failure and v.failure.stage == "rules"]
    return [f"configs that cannot be launched: {len(lost)}; {lost[0].detail}"] if lost else []


def _build_launcher(front: ProblemAnalysis, verdict: Verdict) -> None:
    """Have Triton make what its first launch needs and its cache, while nothing waits for it."""
    from asmtune.compile.load import hash_triton

    artifact = ArtifactCache.of(front.settings).get(verdict.artifact or "")
    if isinstance(artifact, Artifact):
        build_launcher(lowering := front.new_lowering(), verdict.config, artifact)
        hash_triton(lowering)


def _covers(effects: Effects, front: ProblemAnalysis, config: Config) -> bool:
    """Return whether a compiled config's launch does to the arguments no more than expected."""
    return effects.cover(Effects.of(front.works([config]), front.problem.arguments))


def _effects(
    front: ProblemAnalysis, works: Sequence[Work], configs: Sequence[Config], default: Config
) -> Effects:
    """Return what launches of the configs do to the problem's arguments."""
    arguments = front.problem.arguments
    effects = Effects.of(works, arguments)
    effects = effects.beside(front.works([default]), arguments)
    edited = any(config.ir_override for config in configs)
    return effects.with_strays(arguments) if edited else effects
