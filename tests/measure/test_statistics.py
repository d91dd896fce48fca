"""From samples to a measurement: quantiles, Tukey's fences, spread."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from asmtune.core.config import Config
from asmtune.core.records.tuned import Measurement, quantile
from asmtune.measure.timing.statistics import slower, summarise

CONFIG = Config({"BLOCK": 64})
samples = st.lists(st.floats(0.1, 1e6, allow_nan=False), min_size=1, max_size=60)


@given(samples, st.floats(0, 1))
def test_quantiles_are_numpys(values: list[float], share: float) -> None:
    """Interpolated as NumPy's default does, at every share and size."""
    expected = float(np.quantile(values, share))
    assert quantile(sorted(values), share) == pytest.approx(expected, rel=1e-9)


def test_outliers_fall() -> None:
    """What lies beyond one and a half interquartile ranges does not move the percentiles."""
    steady = [10.0, 10.1, 10.2, 10.3, 10.4, 10.5, 10.6, 10.7]
    found = summarise(CONFIG, [*steady, 500.0, 0.001])
    assert found.median_us == pytest.approx(statistics.median(steady))
    assert found.p80_us < 10.7
    assert found.p20_us > 10.0
    assert found.samples_us[-2:] == (500.0, 0.001)
    # The quartiles of these nine are 10.2 and 10.6, so that the fence is at 11.2.
    assert summarise(CONFIG, [*steady, 11.1]).p80_us > summarise(CONFIG, steady).p80_us
    assert summarise(CONFIG, [*steady, 11.3]).p80_us == summarise(CONFIG, steady).p80_us


def test_spread() -> None:
    """The spread is the middle 60% over the median."""
    found = summarise(CONFIG, [float(n) for n in range(1, 12)])
    assert found.spread == pytest.approx((9 - 3) / 6)


@pytest.mark.slow(seconds=2)
@given(samples)
def test_cited_statistics_are_those_of_the_libraries(values: list[float]) -> None:
    """p50, p90 and p99 are NumPy's, the deviation is `statistics.stdev` over the mean, of all."""
    found = summarise(CONFIG, values).statistics
    assert found.samples == len(values)
    for share, us in ((0.5, found.p50_us), (0.9, found.p90_us), (0.99, found.p99_us)):
        assert us == pytest.approx(float(np.quantile(values, share)), rel=1e-9)
    if len(values) == 1:
        assert found.rsd is None
    else:
        expected = statistics.stdev(values) / statistics.fmean(values)
        assert found.rsd == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_no_samples_no_statistics() -> None:
    """A record whose file left the samples out has none."""
    assert Measurement(CONFIG, 1.0, 1.0, 1.0, ()).statistics is None


def test_slower_is_the_test_of_mann_and_whitney() -> None:
    """Five against five, all above, are significant at 1 in 252; any one in between is not."""
    low, high = [1.0, 2, 3, 4, 5], [6.0, 7, 8, 9, 10]
    assert slower([high, low, [4.5, *high[1:]]], low, 0.005) == [True, False, False]
    assert slower([high], low, 1 / 253) == [False]
    assert slower([low], high, 0.5) == [False]


times = st.one_of(st.integers(0, 30).map(float), st.floats(0.1, 1e3))
side = st.lists(times, min_size=5, max_size=14)


@given(side, side)
@example([3.0] * 5, [3.0] * 5)  # no order at all
@example([float(n) for n in range(9)], [n + 0.5 for n in range(9)])
def test_slower_is_scipys_test(above: list[float], below: list[float]) -> None:
    """It says the same as `scipy.stats.mannwhitneyu` on either side of its p-value."""
    expected = float(mannwhitneyu(above, below, alternative="greater").pvalue)
    assert not slower([above], below, expected * (1 - 1e-9))[0]
    assert slower([above], below, expected * (1 + 1e-9))[0]


def test_too_few_samples_tell_nothing() -> None:
    """Four samples on a side are never significant, however far apart, ties included."""
    assert slower([[9.0] * 4, [9.0] * 5], [1.0] * 5, 0.01) == [False, True]
    assert slower([[9.0] * 12], [1.0] * 4, 0.01) == [False]
    assert slower([], [1.0] * 5, 0.01) == []
