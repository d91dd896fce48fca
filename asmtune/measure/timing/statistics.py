"""Statistics: from samples to a measurement, and tests of two sets of samples."""

from __future__ import annotations

from collections.abc import Sequence
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
    is_slower = [False] * len(rows)
    alike: dict[tuple[int, bool], list[int]] = {}
    for place, row in enumerate(rows):
        if min(len(row), len(reference)) >= ENOUGH:
            # SciPy gives up exactness for all rows of a call if one of them has ties.
            has_ties = len({*row, *reference}) < len(row) + len(reference)
            alike.setdefault((len(row), has_ties), []).append(place)
    if not alike:
        return is_slower
    # Takes half a second to import, and half a millisecond a call, whatever the rows.
    from scipy.stats import mannwhitneyu

    for places in alike.values():
        sampled = [rows[place] for place in places]
        test = mannwhitneyu(sampled, [list(reference)], alternative="greater", axis=-1)
        for place, p_value in zip(places, test.pvalue, strict=True):
            is_slower[place] = bool(p_value < significance)
    return is_slower


def chances(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[float]:
    """Return the probability that equal sides show each first one so far above its second.

    The one-sided test of Mann and Whitney (1947), exact. Timers tick, so medians of short kernels
    tie; samples of the side that may be greater are then taken to be less. If ties were broken at
    random, the table without ties would hold. This order is the least favourable one, so equal
    sides show a chance of p or less with a probability of at most p. It differs from the share of
    all orders that rank as high, which counts a tie as half. A side has one sample at least, and
    some tens at most.
    """
    if not pairs:
        return []
    # Takes half a second to import, and a millisecond a call, whatever the rows.
    from scipy.stats import mannwhitneyu

    alike: dict[tuple[int, int], list[int]] = {}
    for place, (above, below) in enumerate(pairs):
        alike.setdefault((len(above), len(below)), []).append(place)
    p_values = [1.0] * len(pairs)
    for places in alike.values():
        ranks = [_ranks(*pairs[place]) for place in places]
        sides = [[rank[side] for rank in ranks] for side in (0, 1)]
        test = mannwhitneyu(*sides, alternative="greater", method="exact", axis=-1)
        for place, value in zip(places, test.pvalue, strict=True):
            p_values[place] = float(value)
    return p_values


def _ranks(above: Sequence[float], below: Sequence[float]) -> tuple[list[int], list[int]]:
    """Rank both sides together; among equal samples those of the greater side rank lower."""
    marked = sorted([*((value, 0) for value in above), *((value, 1) for value in below)])
    first, second = ([at for at, (_, own) in enumerate(marked) if own == side] for side in (0, 1))
    return first, second


def holm(values: Sequence[float], level: float) -> list[bool]:
    """Return which p-values are significant at a level that holds for all of them together.

    Holm (1979), A simple sequentially rejective multiple test procedure: whatever holds
    between the tests, at least one is reported by mistake with a probability of `level` at most.
    """
    significant = [False] * len(values)
    order = sorted(range(len(values)), key=lambda place: values[place])
    for done, place in enumerate(order):
        if values[place] > level / (len(values) - done):
            break
        significant[place] = True
    return significant


def prepare() -> None:
    """Import what `slower` needs, some 0.6 s, at a moment when nothing waits for it."""
    import scipy.stats  # noqa: F401
