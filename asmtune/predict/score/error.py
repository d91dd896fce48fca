"""A scorer's measured error: how much speed a cut of its ranking kept on unseen kernels.

A cut is a pair of limits: a rank, and a gap, which is how far a score may lie
below the ranking's best. Scores are logarithms of predicted times, so that the
gap means the same on every task; the rank bounds what a flat ranking keeps. One
limit alone keeps more: 0.99 of the best speed took 52 configs a task by gap, 30
by rank and 26 by both (`learned`, 178 recorded tasks of 37 kernels on an H200).

The tables are measured, never fitted. Kernels of kinds that the others lack can weigh three times
as much as all others: a kernel by another author is mostly like them. `Widening` scales the losses
of a scorer that is trained, by what was lost as far from its training rows.
`error_file` reads and writes them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

NOISE: Final = 0.01
"""Timings within 1% count as one speed: the best is kept if anything this near to it is kept."""

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
        kernel: its kernel.
        scores, slowdown: of each config; the latter is the logarithm of its time over the best.
        distance: from the rows that the scorer was trained on (`examples.distance`); None for
            a scorer that is not trained.
    """

    kernel: str
    scores: Sequence[float]
    slowdown: Sequence[float]
    distance: float | None = None


@dataclass(frozen=True)
class Cut:
    """Limits of a ranking, and how much they kept where it was measured.

    Attributes:
        count: rank of the last config kept, at most; infinite for no limit.
        gap: how far its score is below the best, at most; infinite for no limit.
        share: of the best speed that was kept, averaged over tasks, in [0, 1].
        dropped: how often nothing within `NOISE` of the best was kept, in [0, 1].
        low: share that all but one in ten tasks kept.
        kept: configs kept, averaged.
    """

    count: float
    gap: float
    share: float
    dropped: float
    low: float
    kept: float

    def size(self, gaps: Sequence[float]) -> int:
        """Return how many configs of a ranking the cut keeps, from their gaps in order."""
        return _size(self.count, bisect_right(gaps, self.gap), len(gaps))


UNLIKE_WEIGHT: Final = 0.75
"""Weight of kernels of kinds that the others lack, of all weight, whatever their number. On 16 such
kernels, each unseen, ten configs were promised 0.971 and kept 0.964; with half of the weight 0.976,
with none 0.990. Kernels like the others keep more than is promised then: 0.988 for 0.972."""

LOW: Final = 0.1
"""Share of tasks, by weight, that keep less than `Cut.low`."""

BINS: Final = (0.5, 0.8)
"""Shares of the tasks' weight at which bins of distance end; the last bin is unlike the rest."""

STEADYING: Final = 10.0
"""Kernels without a difference that each bin is taken to have besides its own."""


@dataclass(frozen=True)
class Widening:
    """Factors of a table's losses by the distance of a launch from the training rows.

    Attributes:
        usual: the median distance of recorded launches from rows of other kernels.
        ends: distances at which a bin ends and the next begins; then the farthest recorded.
        loss: factor of the lost share in each bin, never falling with the distance.
        dropped: factor of the chance that the best is dropped, likewise.
    """

    usual: float
    ends: tuple[float, ...]
    loss: tuple[float, ...]
    dropped: tuple[float, ...]

    def factors(self, distance: float) -> tuple[float, float]:
        """Return the factors at a distance; beyond the farthest recorded they grow with it."""
        place = min(bisect_right(self.ends, distance), len(self.loss) - 1)
        beyond = max(1.0, distance / self.ends[-1])
        return self.loss[place] * beyond, self.dropped[place] * beyond

    def is_far(self, distance: float) -> bool:
        """Say whether a distance is in the last bin: few recorded launches are as far."""
        return distance >= self.ends[-2]


@dataclass(frozen=True)
class ErrorTable:
    """Results of every cut, each kernel weighing the same, or as `of` says.

    Attributes:
        tasks, kernels: numbers of those that were ranked.
        unlike: how many of the kernels are unlike the others, and have `UNLIKE_WEIGHT` together.
        cuts: by index of `counts`, then of `gaps`; with either, more is kept.
        widening: None for a scorer that is not trained.
    """

    tasks: int
    kernels: int
    cuts: tuple[tuple[Cut, ...], ...]
    widening: Widening | None = None
    unlike: int = 0

    @property
    def counts(self) -> tuple[float, ...]:
        """Return the limits of the rank, in order; the last is infinite."""
        return tuple(row[0].count for row in self.cuts)

    @property
    def gaps(self) -> tuple[float, ...]:
        """Return the limits of the gap, in order; the last is infinite."""
        return tuple(cut.gap for cut in self.cuts[0])

    def cut(self, count: float = math.inf, gap: float = math.inf) -> Cut:
        """Return the largest measured cut within limits; count is at least 1, gap at least 0."""
        row = bisect_right(self.counts, count) - 1
        return self.cuts[row][bisect_right(self.gaps, gap) - 1]

    def cut_for(self, share: float) -> Cut:
        """Return the cut that kept fewest configs, of those that kept a share of the best speed.

        If no cut of at most `MOST` ranks kept that share, return the one that kept the most
        speed.
        """
        cuts = [cut for row in self.cuts for cut in row if cut.count <= MOST]
        enough = [cut for cut in cuts if cut.share >= share]
        if enough:
            return min(enough, key=lambda cut: (cut.kept, -cut.share))
        return max(cuts, key=lambda cut: (cut.share, -cut.kept))

    def at(self, distance: float | None) -> ErrorTable:
        """Return the table of launches at a distance from the training rows; None is not known."""
        if self.widening is None or distance is None:
            return self
        loss, dropped = self.widening.factors(distance)
        cuts = tuple(tuple(_widened(cut, loss, dropped) for cut in row) for row in self.cuts)
        return replace(self, cuts=cuts)

    @classmethod
    def of(cls, tasks: Sequence[RankedTask], unlike: Collection[str] = ()) -> ErrorTable:
        """Measure every cut on ranked tasks of at least one kernel.

        Kernels that are `unlike` the others have `UNLIKE_WEIGHT` together, those have the rest.
        """
        weights = _weights(tasks, unlike)
        outcomes = [_outcomes(task) for task in tasks]
        cells = [_cell(at, weights) for at in zip(*outcomes, strict=True)]
        rows = [cells[at : at + len(GAPS)] for at in range(0, len(cells), len(GAPS))]
        cuts = [
            tuple(Cut(count, gap, *cell) for gap, cell in zip(GAPS, row, strict=True))
            for count, row in zip(COUNTS, rows, strict=True)
        ]
        kernels = {task.kernel for task in tasks}
        widening = _widening(tasks, outcomes, weights)
        others = len(kernels.intersection(unlike))
        return cls(len(tasks), len(kernels), tuple(cuts), widening, others)


def gaps_of(scores: Iterable[float]) -> list[float]:
    """Return how far each score is below the first, the best; 0 for equal ones, even infinite."""
    scores = list(scores)
    return [0.0 if score == scores[0] else scores[0] - score for score in scores]


def _size(count: float, within: int, ranked: int) -> int:
    """Return the ranks kept by a limit of the rank, if `within` configs are within the gap."""
    return int(min(ranked, count, max(within, FLOOR)))


def _outcomes(task: RankedTask) -> list[tuple[float, float, int]]:
    """Return share kept, whether the best is dropped, and configs kept, by count, then by gap."""
    order = sorted(range(len(task.scores)), key=lambda i: -task.scores[i])
    gaps = gaps_of(task.scores[i] for i in order)
    least = math.inf
    best = [least := min(least, float(task.slowdown[i])) for i in order]
    sizes = [_size(c, bisect_right(gaps, g), len(gaps)) for c in COUNTS for g in GAPS]
    return [(math.exp(-best[n - 1]), float(best[n - 1] > NOISE), n) for n in sizes]


def _weights(tasks: Sequence[RankedTask], unlike: Collection[str]) -> list[float]:
    """Return a weight of each task: kernels of a side have the same, shared by their tasks."""
    own = Counter(task.kernel for task in tasks)
    sides = Counter(kernel in unlike for kernel in own)
    part = {True: UNLIKE_WEIGHT, False: 1.0 - UNLIKE_WEIGHT} if len(sides) > 1 else {}
    return [
        part.get(task.kernel in unlike, 1.0) / (own[task.kernel] * sides[task.kernel in unlike])
        for task in tasks
    ]


def _cell(
    outcomes: Sequence[tuple[float, float, int]], weights: Sequence[float]
) -> tuple[float, float, float, float]:
    """Return the mean share, the chance of a drop, the low share, and the mean size of a cut."""
    total = math.fsum(weights)
    share, dropped, kept = (
        math.fsum(w * value for w, value in zip(weights, column, strict=True)) / total
        for column in zip(*outcomes, strict=True)
    )
    low = _quantile(sorted(zip((own for own, _, _ in outcomes), weights, strict=True)), LOW)
    return share, dropped, low, kept


def _widened(cut: Cut, loss: float, dropped: float) -> Cut:
    return replace(
        cut,
        share=max(0.0, 1.0 - loss * (1.0 - cut.share)),
        low=max(0.0, 1.0 - loss * (1.0 - cut.low)),
        dropped=min(1.0, dropped * cut.dropped),
    )


_WIDENED_BY: Final = tuple((COUNTS.index(count) + 1) * len(GAPS) - 1 for count in (1, 5, 10, 20))
"""Cuts that a widening is measured on: by rank alone."""


def _widening(
    tasks: Sequence[RankedTask],
    outcomes: Sequence[Sequence[tuple[float, float, int]]],
    weights: Sequence[float],
) -> Widening | None:
    """Measure how losses grow with the distance; None if one is not known, or all are 0."""
    distances = [task.distance for task in tasks if task.distance is not None]
    if len(distances) < len(tasks) or not max(distances):
        return None
    placed = sorted(zip(distances, weights, strict=True))
    ends = [_quantile(placed, share) for share in BINS]
    bins = [bisect_right(ends, distance) for distance in distances]
    kernels = [
        len({task.kernel for task, own in zip(tasks, bins, strict=True) if own == place})
        for place in range(len(BINS) + 1)
    ]
    losses = [[1.0 - own[at][0] for at in _WIDENED_BY] for own in outcomes]
    dropped = [[own[at][1] for at in _WIDENED_BY] for own in outcomes]
    loss, drop = (_factors(values, weights, bins, kernels) for values in (losses, dropped))
    return Widening(_quantile(placed, 0.5), (*ends, max(distances)), loss, drop)


def _quantile(placed: Sequence[tuple[float, float]], share: float) -> float:
    """Return the least value, of pairs of a value and its weight in order, above a share."""
    total = 0.0
    for value, weight in placed:
        total += weight
        if total > share + 1e-9:
            return value
    return placed[-1][0]


def _factors(
    losses: Sequence[Sequence[float]],
    weights: Sequence[float],
    bins: Sequence[int],
    kernels: Sequence[int],
) -> tuple[float, ...]:
    """Return each bin's loss over that of all, steadied, and made not to fall with the distance."""
    pooled: list[tuple[float, float, int]] = []
    for place, count in enumerate(kernels):
        within = [w if own == place else 0.0 for w, own in zip(weights, bins, strict=True)]
        ratios = []
        for column in zip(*losses, strict=True):
            mean = math.fsum(w * loss for w, loss in zip(weights, column, strict=True))
            own = math.fsum(w * loss for w, loss in zip(within, column, strict=True))
            ratios += [own / mean / math.fsum(within)] if mean and count else []
        ratio = math.fsum(ratios) / len(ratios) if ratios else 1.0
        value, size = (count * ratio + STEADYING) / (count + STEADYING), math.fsum(within)
        pooled.append((value, size, 1))
        # Neighbours out of order share their mean (isotonic regression).
        while len(pooled) > 1 and pooled[-2][0] > pooled[-1][0]:
            (one, a, n), (other, b, m) = pooled[-2:]
            mean = (one * a + other * b) / (a + b) if a + b else one
            pooled[-2:] = [(mean, a + b, n + m)]
    return tuple(value for value, _, n in pooled for _ in range(n))
