"""The funnel: from a space to a report of what is worth timing, and why.

    configs --rules--> front end --rules--> back end --> features --rules--> score --> keep

Each stage is cheaper per config than the next and passes on fewer. What it
drops carries a reason with numbers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from asmtune.compile import Compiled, Hooks, Lowering, compile_configs
from asmtune.config import Config
from asmtune.errors import CompileError, SpaceError
from asmtune.features import Profile, ProfileReader
from asmtune.fingerprint import versions
from asmtune.funnel.judge import Judge
from asmtune.funnel.progress import NoProgress, Progress
from asmtune.funnel.ranking import ranked
from asmtune.problem import Problem
from asmtune.records import Failure, PruneReport, Verdict
from asmtune.score import Candidate, Scorer, broken_rules, notes_of
from asmtune.settings import Settings
from asmtune.space import Space
from asmtune.target import Target
from asmtune.workload import Kernel

Outcomes = MutableMapping[str, Compiled[Profile] | Failure]


@dataclass(frozen=True)
class Funnel:
    """How to prune.

    Attributes:
        target: the machine to judge for.
        scorer: ranks what can run.
        settings: limits of a compile, workers, folders.
        keep: how many to keep, besides the default; None for all that can run.
        progress: told how far it is.
        known: outcomes of compiles by digest, shared between problems.
        kernels: TTIR already parsed, likewise.
    """

    target: Target
    scorer: Scorer
    settings: Settings
    keep: int | None = None
    progress: Progress = field(default_factory=NoProgress)
    known: Outcomes = field(default_factory=dict)
    kernels: MutableMapping[str, Kernel] = field(default_factory=dict)

    def prune(self, problem: Problem, space: Space) -> PruneReport:
        """Judges every config of a space on a problem.

        Raises:
            SpaceError: the space has no feasible point, or names what is not there.
            ProblemError: the configs do not fit the kernel.
            CompileError: no config can run; gives the commonest reason.
            StoreError: the artifacts' folder cannot be written.
        """
        clock = _Clock()
        with clock.stage("generate"):
            points = list(space.configs(**problem.shape))
            if not points:
                raise SpaceError(space.describe_empty(**problem.shape))
            default = space.first(**problem.shape)
            configs = list(dict.fromkeys((default, *points)))
        with clock.stage("compile"):
            verdicts = self.judge(problem, configs)
        if all(verdict.dropped_at for verdict in verdicts):
            raise CompileError(_nothing_runs(problem, self.target, verdicts))
        with clock.stage("score"):
            ranking = ranked(verdicts, self.scorer, self.target, self.keep, default)
        return PruneReport(
            kernel=problem.name,
            shape=problem.shape,
            dtypes=problem.dtypes,
            target=self.target.name,
            scorer=self.scorer.name,
            verdicts=tuple(ranking),
            seconds=clock.seconds,
            versions=versions(),
            notes=(*_notes(ranking, default), *notes_of(self.scorer, self.target)),
        )

    def judge(self, problem: Problem, configs: Sequence[Config]) -> list[Verdict]:
        """Verdicts of rules and compiler, not yet scored, in the order of `configs`."""
        verdicts: dict[int, Verdict] = {}
        for position, config in enumerate(configs):
            broken = broken_rules(Candidate(config, self.target), "config", hard=True)
            if broken:
                verdicts[position] = Verdict(config, False, "rules", reasons=broken)
        left = [position for position in range(len(configs)) if position not in verdicts]
        self.progress.start("compile", len(left))
        lowering = Lowering(problem, self.target, self.settings.compile_timeout_s)
        asked = [configs[position] for position in left]
        judge = Judge(problem, self.target, self.kernels)
        hooks = Hooks(ProfileReader(self.target), judge.admit, self.known)
        for index, outcome in compile_configs(lowering, asked, hooks, self.settings):
            verdicts[left[index]] = judge.verdict(asked[index], outcome)
            self.progress.advance()
        return [verdicts[position] for position in range(len(configs))]


class _Clock:
    """Wall-clock seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 3)


def _nothing_runs(problem: Problem, target: Target, verdicts: Sequence[Verdict]) -> str:
    reasons = Counter(verdict.reasons[0] for verdict in verdicts)
    (reason, count) = reasons.most_common(1)[0]
    worst = next(v for v in verdicts if v.reasons[0] == reason)
    detail = worst.failure.detail.strip() if worst.failure else reason.text
    return (
        f"no config of {problem.name} can run on {target.name}: "
        f"{count} of {len(verdicts)} fail with {reason.rule}, such as {worst.config}: {detail}"
    )


def _notes(verdicts: Sequence[Verdict], default: Config) -> tuple[str, ...]:
    mine = next(verdict for verdict in verdicts if verdict.config == default)
    if mine.dropped_at in ("rules", "compile"):
        return (f"the default config ({default}) cannot run here: {mine.reasons[0]}",)
    return ()
