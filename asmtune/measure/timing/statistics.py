"""Statistics: from samples to a measurement, and tests of two sets of samples."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement, quantile

ENOUGH: Final = 5
"""Samples of each side below which no test is significant at one in a hundred: 4 against 4 have 70
orders, 5 against 5 have 252."""


def summarise(config: Config, samples_us: Sequence[float]) -> Measurement:
    """Compute median and percentiles of the samples between Tukey's fences.

    A sample more than 1.5 interquartile ranges outside the quartiles is an
    outlier (Tukey, Exploratory Data Analysis, 1977): a clock change or
    another process, not the kernel. There is at least one sample; they stay in the order taken.
    """
    ordered = sorted(samples_us)
    low, high = quantile(ordered, 0.25), quantile(ordered, 0.75)
    reach = 1.5 * (high - low)
    inner = [sample for sample in ordered if low - reach <= sample <= high + reach]
    return Measurement(
        config=config,
        median_us=quantile(inner, 0.5),
        p20_us=quantile(inner, 0.2),
        p80_us=quantile(inner, 0.8),
        samples_us=tuple(samples_us),
    )


def slower(
    rows: Sequence[Sequence[float]], reference: Sequence[float], significance: float
) -> list[bool]:
    """Test which rows of samples are significantly slower than the reference.

    The one-sided test of Mann and Whitney (1947): of ranks, so that how far an outlier
    lies out does not count, and exact where samples are few and distinct. Where
    samples are fewer than five on a side, nothing is significant. `significance` is the
    probability below which a difference is not luck.
    """
    return [
        min(len(row), len(reference)) >= ENOUGH and _p_value(row, reference) < significance
        for row in rows
    ]


FEW: Final = 8
"""Samples of a side up to which the test is exact, if no two are equal; else it is of a normal
distribution, with half a win for an equal pair. SciPy's test chooses so too; to import that takes
0.6 s, in which this process compiles and times nothing."""


def _p_value(above: Sequence[float], below: Sequence[float]) -> float:
    """Return the probability that equal sides show the first one so far above the second."""
    equal = Counter([*above, *below]).values()
    if min(len(above), len(below)) <= FEW and max(equal) == 1:
        return share_of_orders(len(above), len(below), pairs_won(above, below))
    count, pairs = len(above) + len(below), len(above) * len(below)
    wins = (pairs + pairs_won(above, below) - pairs_won(below, above)) / 2.0
    ties = sum(many**3 - many for many in equal) / (count * (count - 1))
    deviation = math.sqrt(pairs / 12.0 * (count + 1 - ties))
    if not deviation:
        return 1.0
    return math.erfc((wins - pairs / 2.0 - 0.5) / deviation / math.sqrt(2.0)) / 2.0


def share_of_orders(above: int, below: int, wins: int) -> float:
    """Return the share of all orders of two sides in which the first wins this number of pairs."""
    return sum(_orders(*sorted((above, below)))[wins:]) / math.comb(above + below, above)


@lru_cache
def _orders(fewer: int, more: int) -> list[int]:
    """Count the orders of two sides by the pairs that either wins.

    They are the coefficients of a Gaussian binomial: a product of (1 - q^(more + i)) / (1 - q^i).
    """
    counts = [1] + [0] * (fewer * more)
    for i in range(1, fewer + 1):
        for wins in range(len(counts) - 1, more + i - 1, -1):
            counts[wins] -= counts[wins - more - i]
        for wins in range(i, len(counts)):
            counts[wins] += counts[wins - i]
    return counts


def pairs_won(above: Sequence[float], below: Sequence[float]) -> int:
    """Count the pairs that the first side wins; equal samples are no win."""
    ordered = sorted(below)
    return sum(bisect_left(ordered, value) for value in above)
