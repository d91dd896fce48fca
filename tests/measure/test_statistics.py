"""From samples to a measurement: quantiles, Tukey's fences, spread."""

from __future__ import annotations

import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.config import Config
from asmtune.measure import summarise
from asmtune.measure.statistics import quantile

CONFIG = Config({"BLOCK": 64})
samples = st.lists(st.floats(0.1, 1e6, allow_nan=False), min_size=1, max_size=60)


@given(samples, st.floats(0, 1))
def test_quantiles_are_numpys(values: list[float], share: float) -> None:
    """Interpolated as NumPy's default does, at every share and size."""
    expected = float(np.quantile(values, share))
    assert quantile(sorted(values), share) == pytest.approx(expected, rel=1e-9)


@given(samples)
def test_percentiles_are_in_order(values: list[float]) -> None:
    """20%, median and 80% are in order, within what was sampled, and every sample is kept."""
    found = summarise(CONFIG, values)
    assert min(values) <= found.p20_us <= found.median_us <= found.p80_us <= max(values)
    assert found.samples_us == tuple(values)
    assert found.config == CONFIG


def test_one_sample() -> None:
    """A single sample is its own median, with no spread."""
    found = summarise(CONFIG, [7.5])
    assert (found.median_us, found.p20_us, found.p80_us, found.spread) == (7.5, 7.5, 7.5, 0)


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


def test_equal_samples_stay() -> None:
    """Where most samples are equal, the fences close on them and leave them in."""
    found = summarise(CONFIG, [5.0] * 9 + [6.0])
    assert (found.p20_us, found.median_us, found.p80_us) == (5.0, 5.0, 5.0)


def test_order_does_not_matter() -> None:
    """Samples in another order give the same figures."""
    generator = random.Random(1)
    values = [generator.gauss(100, 5) for _ in range(31)]
    shuffled = generator.sample(values, len(values))
    first, second = summarise(CONFIG, values), summarise(CONFIG, shuffled)
    assert (first.median_us, first.spread) == (second.median_us, second.spread)


def test_spread() -> None:
    """The spread is the middle 60% over the median."""
    found = summarise(CONFIG, [float(n) for n in range(1, 12)])
    assert found.spread == pytest.approx((9 - 3) / 6)
