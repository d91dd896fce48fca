"""One search, from a problem to its record.

configs -> sketches -> [compile a batch | time the last one]... -> caps -> finals -> record
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace

from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement, Provenance, TuneRecord
from asmtune.core.space.space import Space
from asmtune.measure.bench.base import Bench, BenchSetup
from asmtune.measure.bench.opening import open_bench
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.preserve import preserved
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import Front
from asmtune.store.lookup import Remembered
from asmtune.store.safe_store import SafeStore
from asmtune.store.trace.run import Ending, Header
from asmtune.tuning.background_compiler import StragglerTimer
from asmtune.tuning.finals import FinalDecision
from asmtune.tuning.initial_state import initial_verdicts, known_to, with_edited
from asmtune.tuning.options import TuneJob, TuneOptions, TuneResult
from asmtune.tuning.run_log import RunListener, RunWatch, SilentListener
from asmtune.tuning.search.state import State
from asmtune.tuning.stages import BenchTimer, Stages
from asmtune.tuning.transfer import Experience

Opener = Callable[[BenchSetup], Bench]


@dataclass(frozen=True)
class Session:
    """How one problem is tuned.

    Attributes:
        funnel: for this GPU; what it has compiled serves all problems of equal specialisation.
        options: how to tune.
        shelf: keeps single timings as they come, and has those of runs that were cut off.
        experience: what other shapes taught.
        audience: told of the run as it goes on.
        opener: opens the bench; `open_bench` as the options say where it is None.
    """

    funnel: Funnel
    options: TuneOptions
    shelf: SafeStore
    experience: Experience = field(default_factory=Experience)
    audience: RunListener = field(default_factory=SilentListener)
    opener: Opener | None = None

    def run(self, job: TuneJob, space: Space, expected: Provenance) -> TuneResult:
        """Searches, times the finalists afresh, and names the winner.

        The problem's tensors hold what they held before.

        Raises:
            InputError: space, problem and kernel do not fit.
            CompileError: no config can run.
            MeasureError: no config that compiled can be launched.
        """
        pulse = StragglerTimer(self.funnel.progress)
        scorer = self.funnel.scorer.for_dtypes(job.problem.dtypes.values())
        funnel = replace(self.funnel, scorer=scorer, progress=pulse)
        front = funnel.front(job.problem)
        default = space.first(**job.problem.shape)
        with ExitStack() as stack:
            header = self._header(job, default)
            watch = RunWatch.begin(funnel.settings, header, self.audience, self.shelf, expected)
            stack.enter_context(watch)
            hooked = any(config.pre_hook for config in space.configs(**job.problem.shape))
            touched = job.problem.arguments.values() if hooked else ()
            # The front end runs hooks, before the bench keeps the arguments whole and after.
            stack.enter_context(preserved(touched))
            with preserved(touched), watch.stage("foresee"):
                state, known = self._state(job, space, funnel, front, watch)
                effects = _effects(front, state.configs, default)
            with watch.stage("open"):
                bench = stack.enter_context(closing(self._bench(front, effects)))
            cache = ArtifactCache.of(funnel.settings)
            timer = BenchTimer(bench, cache, default, watch.measured)
            timer.measurements.update(known)
            stages = Stages(funnel, front, state, timer, self.options, watch)
            reason = stages.search(pulse)
            if "maxnreg" not in space.axes:
                stages.caps()
            decision = stages.finals()
            for note in bench.notes:
                watch.note(note)
            return self._result(job, stages, decision, reason)

    def _state(
        self, job: TuneJob, space: Space, funnel: Funnel, front: Front, watch: RunWatch
    ) -> tuple[State, dict[Config, Measurement]]:
        """What the search begins with, and timings of earlier runs."""
        front.warm()
        found = funnel.searched(job.problem, space)
        for note in found.notes:
            watch.note(note)
        default = space.first(**job.problem.shape)
        configs = found.configs(default, job.problem.shape)
        verdicts = initial_verdicts(funnel, front, configs, self.options.effort)
        remembered = Remembered()
        if not self.options.force:
            remembered = self.shelf.remembered(job.key, watch.expected)
        known, measured = known_to(configs, remembered, self.experience)
        if measured:
            watch.note(f"timings of earlier runs that are taken over: {len(measured)}")
        return State(verdicts, default, with_edited(known, configs)), measured

    def _bench(self, front: Front, effects: Effects) -> Bench:
        options, problem = self.options, front.problem
        setup = BenchSetup(
            # Its own: the front's is busy in another thread while configs are timed.
            lowering=Lowering(problem, front.target, front.settings.compile_timeout_s),
            effects=effects,
            checks=options.checks,
            policy=options.effort.policy,
            seed=options.seed,
            do_bench=options.do_bench,
            hooks=options.hooks,
        )
        if self.opener is not None:
            return self.opener(setup)
        return open_bench(setup, isolate=options.isolate, devices=options.devices)

    def _header(self, job: TuneJob, default: Config) -> Header:
        effort = self.options.effort
        return Header(
            kernel=job.problem.name,
            key=job.key,
            reference=job.reference,
            target=self.funnel.target.name,
            effort=asdict(effort),
            strategy=effort.strategy,
            seed=self.options.seed,
            default=default,
            sizes=None if job.reference is None else dict(job.problem.shape),
        )

    def _result(
        self, job: TuneJob, stages: Stages, decision: FinalDecision, reason: str
    ) -> TuneResult:
        state, watch = stages.state, stages.watch
        finals = {config: o for config, o in decision.outcomes if isinstance(o, Measurement)}
        measured = {**stages.timer.measurements, **finals}
        failures = tuple(state.failures.items())
        record = TuneRecord(
            job.key, decision.winner.config, (*measured.values(),), watch.expected, failures
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
        watch.end(ending)
        return TuneResult(
            job,
            "tuned",
            record,
            run=watch.run,
            default_us=ending.default_us,
            compiled=state.compiles,
            timed=state.trials,
            costs=decision.costs,
        )


def _effects(front: Front, configs: Sequence[Config], default: Config) -> Effects:
    """What launches of the configs do to the problem's arguments."""
    arguments = front.problem.arguments
    effects = Effects.of(front.works(configs), arguments)
    effects = effects.beside(front.works([default]), arguments)
    if any(config.ir_override for config in configs):
        return effects.with_strays(arguments)
    return effects
