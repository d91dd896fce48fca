"""Measure how much speed cuts of a scorer's ranking kept on kernels that it had not seen.

Kernels of kinds that the others lack can weigh three times as much as all others: a kernel by
another author is mostly like them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.predict.score.error import (
    UNLIKE_WEIGHT,
    Cut,
    ErrorTable,
    gaps_of,
    kept_ranks,
)

NOISE: Final = 0.01
"""Timings within 1% count as one speed: the best is kept if anything this near to it is kept."""

COUNTS: Final = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, math.inf)
GAPS: Final = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, math.inf)
"""The limits of the cuts that are measured."""

LOW: Final = 0.1
"""Share of tasks, by weight, that keep less than `Cut.low`."""


@dataclass(frozen=True)
class RankedTask:
    """A ranking of measured configs by a scorer that had not seen their kernel.

    Attributes:
        kernel: its kernel.
        scores, slowdown: of each config; the latter is the logarithm of its time over the best.
    """

    kernel: str
    scores: Sequence[float]
    slowdown: Sequence[float]


def error_table(tasks: Sequence[RankedTask], unlike: Collection[str] = ()) -> ErrorTable:
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
    others = len(kernels.intersection(unlike))
    return ErrorTable(len(tasks), len(kernels), tuple(cuts), others)


def _outcomes(task: RankedTask) -> list[tuple[float, float, int]]:
    """Return share kept, whether the best is dropped, and configs kept, by count, then by gap."""
    order = sorted(range(len(task.scores)), key=lambda i: -task.scores[i])
    gaps = gaps_of(task.scores[i] for i in order)
    least = math.inf
    best = [least := min(least, float(task.slowdown[i])) for i in order]
    sizes = [kept_ranks(c, bisect_right(gaps, g), len(gaps)) for c in COUNTS for g in GAPS]
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


def _quantile(placed: Sequence[tuple[float, float]], share: float) -> float:
    """Return the least value, of pairs of a value and its weight in order, above a share."""
    total = 0.0
    for value, weight in placed:
        total += weight
        if total > share + 1e-9:
            return value
    return placed[-1][0]
