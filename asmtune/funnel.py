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
from dataclasses import dataclass, field, replace
from typing import Protocol

from asmtune.compile import Compiled, Hooks, Lowering, Request, compile_configs
from asmtune.config import Config
from asmtune.errors import CompileError, ParseError, SpaceError
from asmtune.features import Profile, ProfileReader, launch_features
from asmtune.fingerprint import versions
from asmtune.guard import required
from asmtune.problem import Problem
from asmtune.records import Failure, PruneReport, Reason, Verdict
from asmtune.score import Candidate, Scorer, broken_rules, notes_of
from asmtune.score.roofline import predict
from asmtune.settings import Settings
from asmtune.space import Space
from asmtune.target import Target
from asmtune.workload import Call, Kernel, Work, find_dots

Outcomes = MutableMapping[str, Compiled[Profile] | Failure]


class Progress(Protocol):
    """Told how far a stage is."""

    def start(self, stage: str, total: int) -> None:
        """Begins a stage of `total` steps."""

    def advance(self) -> None:
        """One step of the stage is done."""


class NoProgress:
    """Says nothing."""

    def start(self, stage: str, total: int) -> None:
        """Ignores it."""

    def advance(self) -> None:
        """Ignores it."""


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
            ranked = self._rank(verdicts, default)
        return PruneReport(
            kernel=problem.name,
            shape=problem.shape,
            dtypes=problem.dtypes,
            target=self.target.name,
            scorer=self.scorer.name,
            verdicts=tuple(sorted(ranked, key=_order)),
            seconds=clock.seconds,
            versions=versions(),
            notes=(*_notes(ranked, default), *notes_of(self.scorer, self.target)),
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
        judge = _Judge(self, problem)
        hooks = Hooks(ProfileReader(self.target), judge.admit, self.known)
        for index, outcome in compile_configs(lowering, asked, hooks, self.settings):
            verdicts[left[index]] = judge.verdict(asked[index], outcome)
            self.progress.advance()
        return [verdicts[position] for position in range(len(configs))]

    def _rank(self, verdicts: Sequence[Verdict], default: Config) -> list[Verdict]:
        """Scores what can run; keeps the best, and the default whatever its rank."""
        running = [verdict for verdict in verdicts if verdict.kept]
        candidates = [Candidate(v.config, self.target, features=v.features) for v in running]
        scores = self.scorer.score(candidates)
        best_first = sorted(range(len(running)), key=lambda i: -scores[i])
        keep = len(running) if self.keep is None else max(1, self.keep)
        ranked = [verdict for verdict in verdicts if not verdict.kept]
        for rank, index in enumerate(best_first, 1):
            verdict = replace(running[index], rank=rank, score=scores[index])
            if rank > keep and verdict.config != default:
                below = Reason("rank", f"rank {rank} by {self.scorer.name}, {keep} are kept")
                verdict = replace(
                    verdict, kept=False, dropped_at="score", reasons=(below, *verdict.reasons)
                )
            ranked.append(verdict)
        return ranked


class _Judge:
    """Verdicts on the configs of one problem, as their IR and their assembly come in."""

    def __init__(self, funnel: Funnel, problem: Problem) -> None:
        self._funnel = funnel
        self._problem = problem
        self._works: dict[Config, Work] = {}
        self._launches: dict[tuple[str, tuple[int, int, int]], Work] = {}
        self._tensor_bytes = {
            name: value.numel() * value.element_size()
            for name, value in problem.arguments.items()
            if hasattr(value, "numel") and hasattr(value, "element_size")
        }

    def admit(self, config: Config, request: Request) -> Failure | None:
        """Applies the rules that need the IR, and weighs the launch."""
        candidate = Candidate(config, self._funnel.target, find_dots(request.ttir))
        broken = broken_rules(candidate, "ir", hard=True)
        if broken:
            return Failure("rules", broken[0].rule, broken[0].text)
        self._works[config] = self._work(config, request.ttir)
        return None

    def verdict(self, config: Config, outcome: Compiled[Profile] | Failure) -> Verdict:
        """What is known of a config once its compile has ended."""
        if isinstance(outcome, Failure):
            stage = "rules" if outcome.stage == "rules" else "compile"
            reason = Reason(outcome.kind, outcome.detail.strip().split("\n")[0])
            return Verdict(config, False, stage, reasons=(reason,), failure=outcome)
        target = self._funnel.target
        features = launch_features(outcome.reading, self._works[config], target)
        candidate = Candidate(config, target, features=features)
        broken = broken_rules(candidate, "assembly", hard=True)
        prediction = predict(features, target)
        return Verdict(
            config,
            kept=not broken,
            dropped_at="rules" if broken else None,
            reasons=broken or broken_rules(candidate, "assembly", hard=False),
            features=features,
            artifact=outcome.digest,
            predicted_us=round(prediction.us, 2),
            bottleneck=prediction.bottleneck,
        )

    def _work(self, config: Config, ttir: str) -> Work:
        """Configs of one IR and grid ask for the same work."""
        problem = self._problem
        grid = required(f"grid of {problem.name}", lambda: problem.programs(config))
        launch = (ttir, grid)
        if launch not in self._launches:
            self._launches[launch] = self._analyse(config, *launch)
        return self._launches[launch]

    def _analyse(self, config: Config, ttir: str, grid: tuple[int, int, int]) -> Work:
        kernels = self._funnel.kernels
        call = Call(
            arguments=self._problem.bind(config),
            grid=grid,
            tensor_bytes=self._tensor_bytes,
            processors=self._funnel.target.sms,
        )
        try:
            if ttir not in kernels:
                kernels[ttir] = Kernel(ttir)
            return kernels[ttir].work(call)
        except ParseError:
            # The compiler took the text, so the config can run; it is ranked as if
            # no loop took more than one trip.
            return Work.unread(grid)


class _Clock:
    """Wall-clock seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 3)


def _order(verdict: Verdict) -> tuple[int, int]:
    """Kept first, then by rank, then compile failures, then what rules dropped."""
    place = {None: 0, "score": 1, "compile": 2, "rules": 3}[verdict.dropped_at]
    return place, verdict.rank or 0


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
