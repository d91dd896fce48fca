"""Rank the configs that can run, and choose those worth timing or compiling."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from asmtune.base.errors import InputError
from asmtune.core.config import AMD_OPTIONS, Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import Reason, Selection, Verdict
from asmtune.predict.score.error import gaps_of
from asmtune.predict.score.keep import Keep, table_of
from asmtune.predict.score.scorer import Candidate, Scorer


@dataclass(frozen=True)
class Ranking:
    """Kept verdicts by rank, then dropped ones by stage; the selection is None if all are kept."""

    verdicts: tuple[Verdict, ...]
    selection: Selection | None


@dataclass(frozen=True)
class Ranker:
    """A scorer, its target, and when it ranks: at "assembly", or at "sketch" before compiling."""

    scorer: Scorer
    target: Target
    moment: str = "assembly"


@dataclass(frozen=True)
class RankedCut:
    """Verdicts, best first, and where they are cut.

    Attributes:
        verdicts: of the configs that can run.
        scores: one for each verdict.
        selection: how many ranks are left; None for all.
    """

    verdicts: tuple[Verdict, ...]
    scores: tuple[float, ...]
    selection: Selection | None

    @property
    def most(self) -> int:
        """Number of ranks above the cut."""
        return len(self.verdicts) if self.selection is None else self.selection.ranks


def rank_and_cut(running: Sequence[Verdict], ranker: Ranker, keep: Keep | None) -> RankedCut:
    """Score the configs that can run, sort them and cut.

    Raises:
        InputError: `auto` for a scorer whose error at that moment is not known.
    """
    scorer, moment = ranker.scorer, ranker.moment
    candidates = [Candidate(v.config, ranker.target, features=v.features) for v in running]
    scores = scorer.score(candidates)
    best_first = sorted(range(len(running)), key=lambda i: -scores[i])
    placed = tuple(running[index] for index in best_first)
    placed_scores = tuple(scores[index] for index in best_first)
    selection = None
    if keep is not None:
        gaps = gaps_of(placed_scores)
        selection = keep.select(gaps, scorer.effective_name, moment, ranker.target)
    return RankedCut(placed, placed_scores, selection)


def ranked(
    verdicts: Sequence[Verdict], ranker: Ranker, keep: Keep | None, always: Collection[Config]
) -> Ranking:
    """Score the configs that can run; keep the best, and `always`.

    Raises:
        InputError: `auto` for a scorer whose error is not known.
    """
    cut = rank_and_cut([verdict for verdict in verdicts if verdict.kept], ranker, keep)
    done = [verdict for verdict in verdicts if not verdict.kept]
    for index, score in enumerate(cut.scores):
        verdict = replace(cut.verdicts[index], rank=index + 1, score=score)
        if verdict.features is not None and (points := ranker.scorer.points(verdict.features)):
            verdict = replace(verdict, points=points)
        if index < cut.most or verdict.config in always:
            done.append(verdict)
        else:
            text = f"rank {verdict.rank} by {ranker.scorer.name}, {cut.most} are kept"
            reasons = (Reason("rank", text), *verdict.reasons)
            done.append(replace(verdict, kept=False, dropped_at="score", reasons=reasons))
    return Ranking(tuple(sorted(done, key=_order)), cut.selection)


def tile_of(config: Config) -> tuple[tuple[str, Any], ...]:
    """Return a key that is equal for configs that differ only in launch options."""
    return tuple(sorted(item for item in config.kwargs.items() if item[0] not in AMD_OPTIONS))


def _order(verdict: Verdict) -> tuple[int, int]:
    """Return a sort key: kept, then by rank, uncompiled, compile failures, dropped by rules."""
    place = {None: 0, "score": 1, "sketch": 2, "estimate": 3, "compile": 4, "rules": 5}[
        verdict.dropped_at
    ]
    return place, verdict.rank or 0


@dataclass(frozen=True)
class Shortlist:
    """Configs that a prediction before compiling keeps.

    Attributes:
        configs: to compile: the best, the default, and configs whose sketch cannot be parsed.
        dropped: configs that cannot run, then those below the cut, best first.
        selection: how many ranks are compiled; None for all.
    """

    configs: tuple[Config, ...]
    dropped: tuple[Verdict, ...] = ()
    selection: Selection | None = None


def check_compile(budget: Keep, scorer: Scorer) -> None:
    """Refuse a budget of compiles that a scorer cannot spend.

    Raises:
        InputError: the scorer does not rank before compiling, or the budget is auto and the error
            of its ranking before compiling was never measured.
    """
    if not scorer.ranks_before_compiling:
        raise InputError(
            f"compile {budget}: {scorer.name} ranks only what is compiled; "
            "compile all, or rank by learned or roofline"
        )
    budget.check(scorer.name, "sketch")


def shortlisted(
    sketched: Sequence[Verdict], ranker: Ranker, budget: Keep, default: Config
) -> Shortlist:
    """Rank the sketched configs that can run, and take the best and the default."""
    cut = rank_and_cut([verdict for verdict in sketched if verdict.kept], ranker, budget)
    configs: list[Config] = []
    dropped: list[Verdict] = []
    for verdict in sketched:
        if verdict.failure is not None and verdict.failure.stage == "read":
            # A sketch that cannot be parsed says nothing against the config: compile it.
            configs.append(verdict.config)
        elif not verdict.kept:
            dropped.append(verdict)
    for index, verdict in enumerate(cut.verdicts):
        if index < cut.most or verdict.config == default:
            configs.append(verdict.config)
        else:
            dropped.append(_uncompiled(verdict, index + 1, cut.most))
    return Shortlist(tuple(configs), tuple(dropped), cut.selection)


def default_budget(scorer: Scorer) -> Keep | None:
    """Return `auto` where the scorer's error before compiling was measured, else None for all."""
    is_measured = scorer.ranks_before_compiling and table_of(scorer.name, "sketch") is not None
    return Keep(option="compile") if is_measured else None


def _uncompiled(verdict: Verdict, rank: int, most: int) -> Verdict:
    """Return the verdict on a config left out: its predicted time stays, its features go."""
    reason = Reason("sketched_only", f"rank {rank} before compiling, {most} are compiled")
    return replace(
        verdict, kept=False, dropped_at="sketch", reasons=(reason,), features=None, artifact=None
    )
