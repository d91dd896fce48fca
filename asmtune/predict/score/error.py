"""A scorer's own error: what a cut of its ranking kept of kernels that it had never seen.

A cut is a pair of limits: a rank, and a gap, which is how far a score may lie
below the ranking's best. Scores are logarithms of predicted times, so that the
gap means the same on every task; the rank bounds what a flat ranking keeps. One
limit alone keeps more: 0.99 of the best speed took 52 configs a task by gap, 30
by rank and 26 by both (`learned`, 178 recorded tasks of 37 kernels on an H200).

The tables are measured, never fitted, and hold for launches like those that
were recorded. `predict/score/error_file.py` keeps them; `asmtune train --error` makes them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

NOISE: Final = 0.01
"""Two timings within 1% are one speed: the best is kept with anything so near to it."""

FLOOR: Final = 5
"""Ranks that a gap never cuts: the first pick alone kept 0.90 of the best speed, five 0.96."""

COUNTS: Final = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, math.inf)
GAPS: Final = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, math.inf)
"""The limits of the cuts that are measured."""

MOST: Final = 100
"""Ranks beyond which a table chooses no cut: they cost more time than they can save."""


@dataclass(frozen=True)
class RankedTask:
    """A ranking of measured configs by a scorer that had not seen their kernel.

    Attributes:
        kernel: whose configs they are.
        scores: of each config, the scorer's.
        slowdown: of each config, the logarithm of its time over the task's best.
    """

    kernel: str
    scores: Sequence[float]
    slowdown: Sequence[float]


@dataclass(frozen=True)
class Cut:
    """Limits of a ranking, and what they kept where it was measured.

    Attributes:
        count: rank of the last config kept, at most; infinite for no limit.
        gap: how far its score is below the best, at most; infinite for no limit.
        share: of the best speed that was kept, averaged over tasks, in [0, 1].
        dropped: how often nothing within `NOISE` of the best was kept, in [0, 1].
        kept: configs kept, averaged.
    """

    count: float
    gap: float
    share: float
    dropped: float
    kept: float

    def size(self, gaps: Sequence[float]) -> int:
        """How many configs of a ranking it keeps, from their gaps in order."""
        return _size(self.count, bisect_right(gaps, self.gap), len(gaps))


@dataclass(frozen=True)
class ErrorTable:
    """What every cut kept, each kernel weighing the same.

    Attributes:
        tasks, kernels: numbers of those that were ranked.
        cuts: by index of `counts`, then of `gaps`; with either, more is kept.
        counts, gaps: the limits, in order; the last of each is infinite.
    """

    tasks: int
    kernels: int
    cuts: tuple[tuple[Cut, ...], ...]

    @property
    def counts(self) -> tuple[float, ...]:
        """Limits of the rank."""
        return tuple(row[0].count for row in self.cuts)

    @property
    def gaps(self) -> tuple[float, ...]:
        """Limits of the gap."""
        return tuple(cut.gap for cut in self.cuts[0])

    def cut(self, count: float = math.inf, gap: float = math.inf) -> Cut:
        """The largest measured cut within the limits; count is at least 1, gap at least 0."""
        row = bisect_right(self.counts, count) - 1
        return self.cuts[row][bisect_right(self.gaps, gap) - 1]

    def cut_for(self, share: float) -> Cut:
        """The cut that kept the fewest configs of those that kept a share of the best speed.

        Where none of at most `MOST` ranks did, the one that kept the most speed.
        """
        cuts = [cut for row in self.cuts for cut in row if cut.count <= MOST]
        enough = [cut for cut in cuts if cut.share >= share]
        if enough:
            return min(enough, key=lambda cut: (cut.kept, -cut.share))
        return max(cuts, key=lambda cut: (cut.share, -cut.kept))

    @classmethod
    def of(cls, tasks: Sequence[RankedTask]) -> ErrorTable:
        """Measures every cut on ranked tasks, of one kernel at least."""
        by_kernel: dict[str, list[list[tuple[float, float, int]]]] = {}
        for task in tasks:
            by_kernel.setdefault(task.kernel, []).append(_outcomes(task))
        kernels = [[_means(at) for at in zip(*own, strict=True)] for own in by_kernel.values()]
        means = [_means(at) for at in zip(*kernels, strict=True)]
        rows = [means[at : at + len(GAPS)] for at in range(0, len(means), len(GAPS))]
        cuts = [
            tuple(Cut(count, gap, *mean) for gap, mean in zip(GAPS, row, strict=True))
            for count, row in zip(COUNTS, rows, strict=True)
        ]
        return cls(len(tasks), len(by_kernel), tuple(cuts))


def gaps_of(scores: Iterable[float]) -> list[float]:
    """How far each score is below the first, the best; 0 for equal ones, infinite ones included."""
    scores = list(scores)
    return [0.0 if score == scores[0] else scores[0] - score for score in scores]


def _size(count: float, within: int, ranked: int) -> int:
    """Ranks kept by a limit of the rank, where `within` configs are within the gap."""
    return int(min(ranked, count, max(within, FLOOR)))


def _outcomes(task: RankedTask) -> list[tuple[float, float, int]]:
    """Share kept, whether the best is dropped, and configs kept, by count, then by gap."""
    order = sorted(range(len(task.scores)), key=lambda i: -task.scores[i])
    gaps = gaps_of(task.scores[i] for i in order)
    least = math.inf
    best = [least := min(least, float(task.slowdown[i])) for i in order]
    sizes = [_size(c, bisect_right(gaps, g), len(gaps)) for c in COUNTS for g in GAPS]
    return [(math.exp(-best[n - 1]), float(best[n - 1] > NOISE), n) for n in sizes]


def _means(rows: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(math.fsum(column) / len(rows) for column in zip(*rows, strict=True))
