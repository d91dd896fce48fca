"""From samples to a measurement."""

from __future__ import annotations

from collections.abc import Sequence

from asmtune.config import Config
from asmtune.records import Measurement


def summarise(config: Config, samples_us: Sequence[float]) -> Measurement:
    """Median and percentiles of the samples between Tukey's fences.

    A sample more than 1.5 interquartile ranges outside the quartiles is an
    outlier (Tukey, Exploratory Data Analysis, 1977): a clock change or
    another process, not the kernel.

    Args:
        config: what was timed.
        samples_us: at least one, in microseconds, in the order taken.
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


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted samples lie, linearly interpolated."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
