"""Which of the configs that can run are worth timing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from asmtune.base.errors import InputError
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.records.pruned import Selection
from asmtune.core.records.verdicts import Reason, Verdict
from asmtune.predict.score.base import Candidate, Scorer, moments_of, ranked_by
from asmtune.predict.score.error import gaps_of
from asmtune.predict.score.keep import Keep, table_of

NEAR_TIE: Final = 0.02
"""Of a score on a scale of logarithms: the best of a tile, predicted to be at most 2% behind
the last that is kept, is no worse as far as any prediction knows."""

TIES_SHARE: Final = 0.25
"""Of what is kept by rank, the most that is kept for near ties: a flat ranking has many."""


@dataclass(frozen=True)
class Ranking:
    """What was ranked, and what the kept ones are worth.

    Attributes:
        verdicts: kept ones first by rank, then what was dropped, by stage.
        selection: how many ranks were kept; None where all were.
    """

    verdicts: tuple[Verdict, ...]
    selection: Selection | None


@dataclass(frozen=True)
class Ranker:
    """What ranks, and when.

    Attributes:
        scorer: gives the scores.
        target: the machine.
        moment: "assembly", or "sketch" before compiling.
    """

    scorer: Scorer
    target: Target
    moment: str = "assembly"


@dataclass(frozen=True)
class RankedCut:
    """Verdicts best first, and where they are cut.

    Attributes:
        verdicts: of what can run.
        scores: theirs.
        selection: how many ranks are left; None for all.
        tied: why the best of a tile below the cut is left all the same, by its index.
    """

    verdicts: tuple[Verdict, ...]
    scores: tuple[float, ...]
    selection: Selection | None
    tied: Mapping[int, str]

    @property
    def most(self) -> int:
        """Ranks above the cut."""
        return len(self.verdicts) if self.selection is None else self.selection.ranks

    def keeps(self, index: int) -> bool:
        """Whether the verdict of an index is above the cut, or tied with what is."""
        return index < self.most or index in self.tied


def line_up(running: Sequence[Verdict], ranker: Ranker, keep: Keep | None) -> RankedCut:
    """Scores what can run, and cuts.

    Raises:
        InputError: `auto` for a scorer whose error at that moment is not known.
    """
    scorer, moment = ranker.scorer, ranker.moment
    scores = scorer.score(
        [Candidate(v.config, ranker.target, features=v.features) for v in running]
    )
    best_first = sorted(range(len(running)), key=lambda i: -scores[i])
    placed = tuple(running[index] for index in best_first)
    gaps = gaps_of(scores[index] for index in best_first)
    name = ranked_by(scorer)
    selection = None if keep is None else keep.select(gaps, name, moment, ranker.target)
    most = selection.ranks if selection else len(placed)
    near = NEAR_TIE if table_of(name, moment) else 0.0
    tied = _ties([verdict.config for verdict in placed], gaps, most, near)
    return RankedCut(placed, tuple(scores[index] for index in best_first), selection, tied)


def ranked(
    verdicts: Sequence[Verdict], ranker: Ranker, keep: Keep | None, default: Config
) -> Ranking:
    """Scores what can run; keeps the best, the near ties of other tiles, and the default.

    Args:
        verdicts: of rules and compiler.
        ranker: ranks those that can run.
        keep: how many; None for all.
        default: kept whatever its rank.

    Raises:
        InputError: `auto` for a scorer whose error is not known.
    """
    line = line_up([verdict for verdict in verdicts if verdict.kept], ranker, keep)
    done = [verdict for verdict in verdicts if not verdict.kept]
    for index, score in enumerate(line.scores):
        verdict = replace(line.verdicts[index], rank=index + 1, score=score)
        if index in line.tied:
            done.append(_noted(verdict, Reason("tile", line.tied[index])))
        elif line.keeps(index) or verdict.config == default:
            done.append(verdict)
        else:
            text = f"rank {verdict.rank} by {ranker.scorer.name}, {line.most} are kept"
            below = _noted(verdict, Reason("rank", text))
            done.append(replace(below, kept=False, dropped_at="score"))
    return Ranking(tuple(sorted(done, key=_order)), line.selection)


def _ties(
    configs: Sequence[Config], gaps: Sequence[float], most: int, near: float
) -> dict[int, str]:
    """The best of each tile of which none is kept, where it is near the last kept; and why."""
    tiles = {_tile(config) for config in configs[:most]}
    allowed = math.ceil(most * TIES_SHARE)
    tied: dict[int, str] = {}
    for index in range(most, len(configs)):
        behind = gaps[index] - gaps[most - 1]
        if len(tied) == allowed or not behind <= near:
            break
        if (tile := _tile(configs[index])) not in tiles:
            tiles.add(tile)
            place = f"{behind:.1%} behind" if behind else "level with"
            tied[index] = f"the best of its tile, {place} the last of {most} kept"
    return tied


def _tile(config: Config) -> tuple[tuple[str, Any], ...]:
    """Equal for configs that differ in warps, stages, programs a cluster or registers alone."""
    return tuple(sorted(config.kwargs.items()))


def _noted(verdict: Verdict, reason: Reason) -> Verdict:
    return replace(verdict, reasons=(reason, *verdict.reasons))


def _order(verdict: Verdict) -> tuple[int, int]:
    """Kept first, then by rank, then the uncompiled, compile failures, what rules dropped."""
    place = {None: 0, "score": 1, "sketch": 2, "compile": 3, "rules": 4}[verdict.dropped_at]
    return place, verdict.rank or 0


@dataclass(frozen=True)
class Shortlist:
    """What a prediction before compiling leaves.

    Attributes:
        configs: to compile: the best, near ties of other tiles, the default, and those whose
            sketch cannot be read.
        dropped: what cannot run, and those below, best first.
        selection: how many ranks are compiled; None for all.
    """

    configs: tuple[Config, ...]
    dropped: tuple[Verdict, ...] = ()
    selection: Selection | None = None


def check_compile(budget: Keep, scorer: Scorer) -> None:
    """Refuses a budget of compiles that a scorer cannot spend.

    Raises:
        InputError: it ranks nothing before compiling, or the budget is auto and its error
            at this moment was never measured.
    """
    if "sketch" not in moments_of(scorer):
        raise InputError(
            f"compile {budget}: {scorer.name} ranks only what is compiled; "
            "compile all, or rank by learned or roofline"
        )
    budget.check(scorer.name, "sketch")


def shortlisted(
    sketched: Sequence[Verdict], ranker: Ranker, budget: Keep, default: Config
) -> Shortlist:
    """Ranks what can run as far as a sketch tells, and takes the best.

    Args:
        sketched: verdicts of rules and sketches.
        ranker: at the moment "sketch".
        budget: how many.
        default: taken whatever its rank.
    """
    line = line_up([verdict for verdict in sketched if verdict.kept], ranker, budget)
    configs: list[Config] = []
    dropped: list[Verdict] = []
    for verdict in sketched:
        if verdict.failure is not None and verdict.failure.stage == "read":
            # Nothing is known against it: the compiler took it, and its assembly can tell.
            configs.append(verdict.config)
        elif not verdict.kept:
            dropped.append(verdict)
    for index, verdict in enumerate(line.verdicts):
        if line.keeps(index) or verdict.config == default:
            configs.append(verdict.config)
        else:
            dropped.append(_uncompiled(verdict, index + 1, line.most))
    return Shortlist(tuple(configs), tuple(dropped), line.selection)


def _uncompiled(verdict: Verdict, rank: int, most: int) -> Verdict:
    """A config left out: its predicted time stands, its features were but estimates."""
    reason = Reason("rank", f"rank {rank} before compiling, {most} are compiled")
    return replace(
        verdict, kept=False, dropped_at="sketch", reasons=(reason,), features=None, artifact=None
    )
