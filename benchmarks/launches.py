"""Recorded timings, with the data from which each config's features are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from asmtune.compile.lower import Lowering
from asmtune.compile.worker import CompiledConfig
from asmtune.core.config import Config
from asmtune.core.oracle import Oracle, Task
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.verdicts import Verdict
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.profile import Profile
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.prune.front import Front, Judge, Outcomes
from asmtune.predict.score.learned import FEWEST
from asmtune.workshop.replay.flow import judged_moments


@dataclass(frozen=True)
class Launch:
    """A compiled config in one launch.

    Attributes:
        config: the config.
        compiled: profile of its assembly.
        sketched: profile of its TTGIR.
        work: work of the launch.
    """

    config: Config
    compiled: Profile
    sketched: Profile
    work: Work


@dataclass(frozen=True)
class TimedTask:
    """The timed configs of a task that compile.

    Attributes:
        task: the task.
        milliseconds: time of each launch.
        launches: the configs, in the file's order.
    """

    task: Task
    milliseconds: Sequence[float]
    launches: Sequence[Launch]


@dataclass(frozen=True)
class Reader(Funnel):
    """A funnel that remembers which problem it judged last.

    Attributes:
        fronts: the last problem's front end.
    """

    fronts: list[Front] = field(default_factory=list)

    def front(self, problem: Problem) -> Front:
        """Give the front end of a problem; kept until the next problem."""
        self.fronts[:] = [super().front(problem)]
        return self.fronts[0]


def read(oracle: Oracle, kernels: Path, reader: Reader) -> Iterator[TimedTask]:
    """Read the tasks of a file that the learned scorer ranks, with their launches.

    Raises:
        OracleError: a kernel's module is missing.
        ProblemError: a module cannot be loaded, or its arguments do not fit.
    """
    for judged in judged_moments(oracle, kernels, reader, early=False):
        task, compiled = judged.task, judged.compiled
        front = reader.fronts[0]
        sketched = front.verdicts([v.config for v in compiled], "sketch", reader.sketches)
        lowering = Lowering(front.problem, reader.target, reader.settings.compile_timeout_s)
        judge = Judge(front.problem, reader.target, reader.kernels)
        milliseconds, launches = [], []
        for row, *moments in zip(task.rows, compiled, sketched, strict=True):
            config = moments[0].config
            built = _profile(moments[0], reader.known)
            early = _profile(moments[1], reader.sketches)
            request = lowering.request(config)
            if row.ms is None or built is None or early is None or isinstance(request, Failure):
                continue
            milliseconds.append(row.ms)
            launches.append(Launch(config, built, early, judge.work(config, request.ttir)))
        if len(launches) >= FEWEST:
            yield TimedTask(task, milliseconds, launches)


def _profile(verdict: Verdict, known: Outcomes) -> Profile | None:
    """Give the profile from which the features of a verdict were computed."""
    outcome = known.get(verdict.artifact or "")
    return outcome.reading if isinstance(outcome, CompiledConfig) else None
