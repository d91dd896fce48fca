"""Rank the configs that can run, and choose those worth timing or compiling."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from asmtune.base.errors import InputError
from asmtune.core.config import AMD_OPTIONS, Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.verdicts import Reason, Selection, Verdict
from asmtune.predict.score.error import gaps_of
from asmtune.predict.score.keep import Keep, table_of
from asmtune.predict.score.scorer import Candidate, Scorer

NEAR_TIE: Final = 0.02
"""Difference of scores that counts as a tie, for scores that are logarithms: a config predicted
at most 2% behind the last kept one is not known to be worse."""

TIES_SHARE: Final = 0.25
"""Most near ties kept, as a share of the configs kept by rank: a flat ranking has many ties."""


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
        tied: by index, why a config below the cut is kept: it is the best of its tile.
    """

    verdicts: tuple[Verdict, ...]
    scores: tuple[float, ...]
    selection: Selection | None
    tied: Mapping[int, str]

    @property
    def most(self) -> int:
        """Number of ranks above the cut."""
        return len(self.verdicts) if self.selection is None else self.selection.ranks

    def keeps(self, index: int) -> bool:
        """Return whether the verdict of an index is above the cut, or tied with one that is."""
        return index < self.most or index in self.tied


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
    gaps = gaps_of(scores[index] for index in best_first)
    name = scorer.effective_name
    selection = None
    if keep is not None:
        selection = keep.select(gaps, name, moment, ranker.target)
    most = selection.ranks if selection else len(placed)
    near = NEAR_TIE if table_of(name, moment) else 0.0
    tied = _ties([verdict.config for verdict in placed], gaps, most, near)
    return RankedCut(placed, tuple(scores[index] for index in best_first), selection, tied)


def ranked(
    verdicts: Sequence[Verdict], ranker: Ranker, keep: Keep | None, always: Collection[Config]
) -> Ranking:
    """Score the configs that can run; keep the best, near ties of other tiles, and `always`.

    Raises:
        InputError: `auto` for a scorer whose error is not known.
    """
    cut = rank_and_cut([verdict for verdict in verdicts if verdict.kept], ranker, keep)
    done = [verdict for verdict in verdicts if not verdict.kept]
    for index, score in enumerate(cut.scores):
        verdict = replace(cut.verdicts[index], rank=index + 1, score=score)
        if verdict.features is not None and (points := ranker.scorer.points(verdict.features)):
            verdict = replace(verdict, points=points)
        if index in cut.tied:
            done.append(_noted(verdict, Reason("tile", cut.tied[index])))
        elif cut.keeps(index) or verdict.config in always:
            done.append(verdict)
        else:
            text = f"rank {verdict.rank} by {ranker.scorer.name}, {cut.most} are kept"
            below = _noted(verdict, Reason("rank", text))
            done.append(replace(below, kept=False, dropped_at="score"))
    return Ranking(tuple(sorted(done, key=_order)), cut.selection)


def _ties(
    configs: Sequence[Config], gaps: Sequence[float], most: int, near: float
) -> dict[int, str]:
    """Return the best of each dropped tile that is near the last kept config, with the reason."""
    tiles = {tile_of(config) for config in configs[:most]}
    allowed = math.ceil(most * TIES_SHARE)
    tied: dict[int, str] = {}
    for index in range(most, len(configs)):
        behind = gaps[index] - gaps[most - 1]
        if len(tied) == allowed or not behind <= near:
            break
        if (tile := tile_of(configs[index])) not in tiles:
            tiles.add(tile)
            place = f"{behind:.1%} behind" if behind else "level with"
            tied[index] = f"the best of its tile, {place} the last of {most} kept"
    return tied


def tile_of(config: Config) -> tuple[tuple[str, Any], ...]:
    """Return a key that is equal for configs that differ only in launch options."""
    return tuple(sorted(item for item in config.kwargs.items() if item[0] not in AMD_OPTIONS))


def _noted(verdict: Verdict, reason: Reason) -> Verdict:
    return replace(verdict, reasons=(reason, *verdict.reasons))


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
        configs: to compile: the best, near ties of other tiles, the default, and configs whose
            sketch cannot be parsed.
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
        if cut.keeps(index) or verdict.config == default:
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
