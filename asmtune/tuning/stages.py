"""The stages of a run once the bench is open: search, caps, finals."""

from __future__ import annotations

from dataclasses import dataclass

from asmtune.base.errors import CompileError, MeasureError
from asmtune.core.records.verdicts import Verdict
from asmtune.measure.timing.statistics import prepare
from asmtune.predict.prune.caps import caps_for
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import Front
from asmtune.search.strategies import make_strategy
from asmtune.tuning.background_compiler import BackgroundCompiler, Pulse
from asmtune.tuning.finals import Decision, Finals
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.run_log import RunWatch
from asmtune.tuning.search.base import Ended, Insight
from asmtune.tuning.search.loop import run
from asmtune.tuning.search.state import State
from asmtune.tuning.timing import BenchTimer


@dataclass(frozen=True)
class Stages:
    """What is done with a state.

    Attributes:
        funnel, front: compile and judge.
        state: what is known; filled.
        timer: checks and times.
        options: how to tune.
        watch: told of everything.
    """

    funnel: Funnel
    front: Front
    state: State
    timer: BenchTimer
    options: TuneOptions
    watch: RunWatch

    def search(self, pulse: Pulse) -> str:
        """Compiles and times until it is not worth it any more; says why it ended.

        Args:
            pulse: the front's progress.

        Raises:
            CompileError: nothing compiles.
            MeasureError: nothing that compiled can be launched, or is right.
        """
        effort = self.options.effort
        insight = Insight(self.funnel.scorer, self.funnel.target)
        strategy = make_strategy(effort.strategy, self.options.seed, insight, effort.pace)
        compiler = BackgroundCompiler(self.front, self.funnel.known, pulse, prepare)
        with self.watch.stage("search"), compiler:
            ended = run(strategy, self.state, compiler, self.timer, effort.limits, self.watch)
        if not ended.finalists:
            raise self._nothing(ended)
        return ended.reason

    def caps(self) -> None:
        """Tries caps on the registers of the fastest configs, read off their machine code."""
        effort = self.options.effort
        parents = [v for v in self.state.finalists(effort.limits.finalists) if _uncapped(v)]
        derived = caps_for(parents, self.funnel.cap_source(), effort.caps)
        if not derived:
            return
        with self.watch.stage("caps"):
            verdicts = self.front.verdicts(list(derived), "assembly", self.funnel.known)
            self.state.add_verdicts(verdicts)
            self.watch.batch(verdicts, 0.0)
            outcomes = self.timer.trial([verdict for verdict in verdicts if verdict.kept])
            self.state.add_outcomes(outcomes)
            self.watch.trial(outcomes, None)

    def finals(self) -> Decision:
        """Times the fastest and the default afresh; one of them wins.

        Raises:
            MeasureError: none of them can be timed.
        """
        effort = self.options.effort
        finals = Finals(self.timer.final, self.timer.energy, effort.policy, self.options.objective)
        with self.watch.stage("finals"):
            decision = finals.decide(self._finalists(), self.state.default)
        self.watch.decided(decision)
        return decision

    def _finalists(self) -> list[Verdict]:
        """The fastest of different code, and the default: equal binaries share their samples."""
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


def _uncapped(verdict: Verdict) -> bool:
    return verdict.config.maxnreg is None
