"""The funnel: from a space to a report of which configs are worth timing, and why.

    configs --rules--> front end --rules--> back end --> features --rules--> score --> keep

Each stage is cheaper per config than the next and passes on fewer configs. A dropped config
carries a reason with numbers. With a budget of compiles, sketches come between front end and
back end, and the same scorer chooses the configs to compile.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Final

from asmtune.base.errors import CompileError, NoCompilerError
from asmtune.base.fingerprint import versions
from asmtune.base.settings import Settings
from asmtune.base.text import user_stacklevel
from asmtune.compile.worker import Workers
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.progress import ProgressListener
from asmtune.core.records.verdicts import STORED, PruneReport, Reason, Unlisted, Verdict
from asmtune.core.space.space import Space
from asmtune.ir.ttir.analysis import Kernel
from asmtune.ir.ttir.work import Assumption, Work
from asmtune.predict.features.sketch.reader import can_sketch
from asmtune.predict.prune.front import Outcomes, ProblemAnalysis
from asmtune.predict.prune.ranking import Ranker, Shortlist, check_compile, ranked, shortlisted
from asmtune.predict.prune.rounds import WORTH_IT, Sketched, sketch_part, sketches_for, thinned
from asmtune.predict.prune.tiles import SearchedSpace, searched_part
from asmtune.predict.score.keep import Keep, of_whole_space
from asmtune.predict.score.scorer import Scorer
from asmtune.predict.score.scorers import for_target

DEFAULT_FAILS: Final = "the default config"
"""Beginning of the note that the default config cannot run."""

A_GUESS: Final = "predicted times rest on a guess: "
"""Beginning of a note on a loop or branch that could not be evaluated."""

_MOST_LATE: Final = 8
"""Most configs that timed out that a note names."""

_MOST_ASSUMPTIONS: Final = 3
"""Most assumptions that one note lists: each tile has its own trips."""


class UntriedTritonWarning(UserWarning):
    """Triton is newer than any that asmtune was tried with."""


@cache
def _notice_of_untried_triton() -> None:
    """Warn of a newer Triton, once a process."""
    from asmtune.triton_api.compiler import NEWEST_TRIED, newer_than_tried

    if (version := newer_than_tried()) is not None:
        warnings.warn(
            f"triton {version} is newer than {NEWEST_TRIED}, the newest that asmtune was tried "
            f"with: what it has changed may fail; if so, install triton {NEWEST_TRIED}",
            UntriedTritonWarning,
            stacklevel=user_stacklevel(),
        )


def default_notes(verdicts: Sequence[Verdict], default: Config) -> tuple[str, ...]:
    """Return why the default cannot run, if it cannot."""
    own = next(verdict for verdict in verdicts if verdict.config == default)
    if own.dropped_at in ("rules", "compile"):
        return (f"{DEFAULT_FAILS} ({default}) cannot run here: {own.reasons[0]}",)
    return ()


def timeout_notes(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Return which configs the compiler took too long for, if there are any."""
    late = [v for v in verdicts if v.failure is not None and v.failure.kind == "timeout"]
    if not late or late[0].failure is None:
        return ()
    more = f"; and {len(late) - _MOST_LATE} more" if len(late) > _MOST_LATE else ""
    named = "; ".join(str(verdict.config) for verdict in late[:_MOST_LATE])
    return (f"timed out: {named}{more}: {late[0].failure.detail}",)


def guess_notes(works: Iterable[Work]) -> tuple[str, ...]:
    """Return what could not be evaluated in the launches, equal assumptions once."""
    assumed: dict[Assumption, dict[str, None]] = {}
    for work in works:
        for assumption in work.assumptions:
            same = replace(assumption, loop=None, assumed="")
            assumed.setdefault(same, {})[assumption.assumed] = None
    return tuple(
        f"{A_GUESS}{replace(assumption, assumed=_either(list(trips)))}"
        for assumption, trips in assumed.items()
    )


def steering_notes(works: Iterable[Work]) -> tuple[str, ...]:
    """Return what the trips and branches follow that index tensors steer, a note each."""
    return tuple(dict.fromkeys(str(argument) for work in works for argument in work.steering))


def size_notes(works: Iterable[Work]) -> tuple[str, ...]:
    """Return the arguments whose memory ends before the furthest byte that is accessed."""
    ends: dict[tuple[str, int], int] = {}
    for work in works:
        for use in work.arguments:
            if use.size_bytes and use.end_bytes > use.size_bytes:
                key = (use.name, use.size_bytes)
                ends[key] = max(use.end_bytes, ends.get(key, 0))
    return tuple(
        f"{name} has {size:,} bytes, and the kernel goes on to byte {end:,}: give it its whole size"
        for (name, size), end in ends.items()
    )


def _either(assumed: list[str]) -> str:
    listed = assumed[:_MOST_ASSUMPTIONS]
    return " or ".join([*listed, "others"] if len(assumed) > _MOST_ASSUMPTIONS else listed)


@dataclass(frozen=True)
class Funnel:
    """Target, scorer, limits and caches of a pruning run.

    Attributes:
        target: the machine to judge for.
        scorer: ranks what can run.
        settings: limits of a compile, workers, folders.
        keep: how many to keep, besides the default; None for all that can run.
        progress: listener.
        known: outcomes of compiles by digest, shared between problems.
        kernels: TTIR already parsed, shared in the same way.
        compile: how many to compile, by the scorer's prediction before it; None for all.
            `auto` compiles all of a space that is not larger than what it would choose.
        sketches: outcomes of sketches by digest, like `known`.
        stored: a record's config, to compile, keep and mark whatever its rank.
        wanted: further configs to compile whatever their rank, of the space or not.
    """

    target: Target
    scorer: Scorer
    settings: Settings
    keep: Keep | None = None
    progress: ProgressListener = field(default_factory=ProgressListener)
    known: Outcomes = field(default_factory=dict)
    kernels: MutableMapping[str, Kernel] = field(default_factory=dict)
    compile: Keep | None = None
    sketches: Outcomes = field(default_factory=dict)
    stored: Config | None = None
    wanted: tuple[Config, ...] = ()

    def prune(self, problem: Problem, space: Space) -> PruneReport:
        """Judge every config of a space on a problem.

        Raises:
            SpaceError: the space has no feasible point, or names what is not there.
            ProblemError: no config fits the kernel, or can be launched.
            CompileError: no config can run; gives the commonest reason.
            InputError: `keep` or `compile` is auto and the scorer's error is not known, or
                `compile` is given and the scorer cannot rank before compiling.
            StoreError: the artifacts' folder cannot be written.
        """
        own_scorer = for_target(self.scorer, self.target).for_dtypes(problem.dtypes.values())
        if own_scorer is not self.scorer:
            return replace(self, scorer=own_scorer).prune(problem, space)
        self._check()
        clock = _Clock()
        with clock.stage("generate"):
            default = space.first(**problem.shape)
            front = self.front(problem)
            searched = self.searched(front, space)
            configs = searched.configs(default, problem.shape)
            front.check_grids(configs)
        chosen, sketched = self._chosen(front, configs, default, clock)
        verdicts = self._verdicts(front, chosen, clock)
        with clock.stage("score"):
            always = [config for config in (default, self.stored) if config is not None]
            ranking = ranked(verdicts, Ranker(self.scorer, self.target), self.keep, always)
        works = list(front.works([v.config for v in ranking.verdicts if v.kept]))
        return PruneReport(
            kernel=problem.name,
            shape=problem.shape,
            dtypes=problem.dtypes,
            target=self.target.name,
            scorer=self.scorer.name,
            verdicts=ranking.verdicts,
            seconds=clock.seconds,
            versions=versions(),
            selection=ranking.selection,
            compiled=chosen.selection,
            unlisted=sketched.unlisted,
            notes=(
                *default_notes(ranking.verdicts, default),
                *timeout_notes(ranking.verdicts),
                *searched.notes,
                *sketched.notes,
                *guess_notes(works),
                *steering_notes(works),
                *size_notes(works),
                *self.scorer.notes(self.target),
            ),
        )

    def _chosen(
        self, front: ProblemAnalysis, configs: Sequence[Config], default: Config, clock: _Clock
    ) -> tuple[Shortlist, Sketched]:
        """Choose the configs to compile, and return what is known of all; without a budget all."""
        budget = self._budget(len(configs))
        if budget is None:
            return Shortlist(tuple(configs)), Sketched([], [], self._unsketched())
        sketched = self._sketched(front, configs, budget, clock)
        ranker = Ranker(self.scorer, self.target, "sketch")
        chosen = shortlisted(sketched.verdicts, ranker, budget, default)
        if not sketched.left:
            return chosen, sketched
        assert chosen.selection is not None  # there is a budget
        beyond = sum(one.configs for one in sketched.unlisted)
        count, others = len(sketched.verdicts), len(sketched.left) + beyond
        note = (
            f"of {others + count:,} configs {count:,} ranked by their sketches, "
            f"{len(chosen.configs):,} by assembly, the others by the sketches of those"
        )
        note += f"; {beyond:,} of them are counted, not listed" if beyond else ""
        selection = of_whole_space(chosen.selection, count, others, self.target)
        dropped = (*chosen.dropped, *sketched.left)
        chosen = replace(chosen, dropped=dropped, selection=selection)
        return chosen, replace(sketched, notes=[*sketched.notes, note])

    def _verdicts(self, front: ProblemAnalysis, chosen: Shortlist, clock: _Clock) -> list[Verdict]:
        """Compile the chosen configs, and those that are wanted whatever their rank."""
        compiled = partial(front.verdicts, moment="assembly", known=self.known)
        with clock.stage("compile"):
            verdicts = [*compiled(chosen.configs), *chosen.dropped]
        if all(verdict.dropped_at for verdict in verdicts):
            raise _nothing_runs(front.problem, self.target, verdicts)
        verdicts = _with_wanted(verdicts, self._asked_for(), compiled)
        return verdicts if self.stored is None else _marked(verdicts, self.stored)

    def _asked_for(self) -> tuple[Config, ...]:
        """Return the configs to compile whatever their rank."""
        return self.wanted if self.stored is None else (self.stored, *self.wanted)

    def judge(self, problem: Problem, configs: Sequence[Config]) -> list[Verdict]:
        """Return verdicts of rules and compiler, not yet scored, in the order of `configs`."""
        return self.front(problem).verdicts(configs, "assembly", self.known)

    def searched(self, front: ProblemAnalysis, space: Space) -> SearchedSpace:
        """Return the part of a space to search: tiles that programs do not follow are held.

        Raises:
            SpaceError: the space has no feasible point, or names what is not there.
            ProblemError: arguments and config do not fit the kernel.
        """
        default = space.first(**front.problem.shape)
        return searched_part(front, space, default)

    def front(self, problem: Problem) -> ProblemAnalysis:
        """Return the front end of a problem, for verdicts before compiling and after."""
        _notice_of_untried_triton()
        workers = Workers(self.settings.jobs)
        return ProblemAnalysis(
            problem, self.target, self.settings, self.progress, self.kernels, workers
        )

    def _check(self) -> None:
        if self.keep is not None:
            self.keep.check(self.scorer.name)
        if self.compile is not None:
            check_compile(self.compile, self.scorer)

    def _budget(self, count: int) -> Keep | None:
        """Return the budget of compiles; None where it takes all of `count` configs.

        Sketches would then cost a tenth of a compile each and leave next to nothing out. All are
        compiled for a target whose TTGIR no sketch reads.
        """
        if self.compile is None or not can_sketch(self.target):
            return None
        name = self.scorer.effective_name
        return None if self.compile.takes_all(count, name, "sketch") else self.compile

    def _unsketched(self) -> list[str]:
        """Return a note where a budget of compiles was asked for and cannot be kept."""
        if self.compile is None or self.compile.is_auto or can_sketch(self.target):
            return []
        return [f"all were compiled: no sketch reads the TTGIR of {self.target.arch}"]

    def _sketched(
        self, front: ProblemAnalysis, configs: Sequence[Config], budget: Keep, clock: _Clock
    ) -> Sketched:
        """Sketch all configs; of a large space a part, which ranks the others."""
        most = sketches_for(budget, self.scorer.effective_name, len(configs))
        with clock.stage("sketch"):
            if len(configs) <= WORTH_IT * most:
                return Sketched(front.verdicts(configs, "sketch", self.sketches), [])
            chosen = thinned(configs, most, self._asked_for())
            ranker = Ranker(self.scorer, self.target, "sketch")
            sketched = sketch_part(front, chosen, ranker, most, self.sketches)
        beyond = len(configs) - len(chosen)
        unlisted = (Unlisted("estimate", "estimated_only", beyond),) if beyond else ()
        return replace(sketched, unlisted=unlisted)


def _with_wanted(
    verdicts: list[Verdict],
    wanted: Sequence[Config],
    judge: Callable[[Sequence[Config]], Iterable[Verdict]],
) -> list[Verdict]:
    """Compile the configs that are wanted and were not compiled, if only a rank was against it."""
    by_config = {verdict.config: verdict for verdict in verdicts}
    left = [
        config
        for config in dict.fromkeys(wanted)
        if config not in by_config or by_config[config].dropped_at in ("estimate", "sketch")
    ]
    if not left:
        return verdicts
    return [*(by_config | {verdict.config: verdict for verdict in judge(left)}).values()]


def _marked(verdicts: Iterable[Verdict], stored: Config) -> list[Verdict]:
    """Mark the stored config's verdict."""
    mark = Reason(STORED, "the record's config, compiled and kept whatever its rank")
    return [
        replace(verdict, reasons=(*verdict.reasons, mark)) if verdict.config == stored else verdict
        for verdict in verdicts
    ]


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = round(time.perf_counter() - start, 3)


def _nothing_runs(problem: Problem, target: Target, verdicts: Sequence[Verdict]) -> CompileError:
    tried = [verdict for verdict in verdicts if verdict.dropped_at not in ("sketch", "estimate")]
    rules = Counter(verdict.reasons[0].rule for verdict in tried)
    (rule, count) = rules.most_common(1)[0]
    worst = next(v for v in tried if v.reasons[0].rule == rule)
    text = worst.failure.detail if worst.failure else worst.reasons[0].text
    detail = text.strip().partition("\n")[0]
    left = len(verdicts) - len(tried)
    compiled = " that was compiled" if left else ""
    more = f"; {left} were not compiled: compile more" if left else ""
    never_started = all(v.failure is not None and v.failure.stage == "start" for v in tried)
    return (NoCompilerError if never_started else CompileError)(
        f"no config of {problem.name}{compiled} can run on {target.name}: "
        f"{count} of {len(tried)} fail with {rule}, such as {worst.config}: {detail}{more}"
    )
