"""Significance over many rows: Mann-Whitney's chances with ties, and Holm's correction."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from asmtune.workshop.regression.compare import chances, holm

few = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=4)


@given(few, few)
@example([0.0, 2.0], [1.0, 1.0, 1.0])  # ties as half: 0.7 of the orders rank as high; here 0.6
def test_chances_keep_every_level(above: list[float], below: list[float]) -> None:
    """Of all orders of any values a share of p at most has a chance of p or less."""
    values = [*above, *below]
    orders = [
        ([values[n] for n in mine], [values[n] for n in range(len(values)) if n not in mine])
        for mine in itertools.combinations(range(len(values)), len(above))
    ]
    found = chances(orders)
    for level in found:
        assert statistics.fmean(other <= level + 1e-12 for other in found) <= level + 1e-9


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8, unique=True), st.data())
def test_chances_without_ties_are_exact(values: list[float], data: st.DataObject) -> None:
    """The share of all orders that win as many of their pairs as this one."""
    size = data.draw(st.integers(1, len(values) - 1))

    def wins(mine: tuple[int, ...]) -> int:
        rest = [values[n] for n in range(len(values)) if n not in mine]
        return sum(values[n] > other for n in mine for other in rest)

    own = wins(tuple(range(size)))
    orders = itertools.combinations(range(len(values)), size)
    expected = statistics.fmean(wins(order) >= own for order in orders)
    assert chances([(values[:size], values[size:])]) == [pytest.approx(expected)]


@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0.001, 0.5))
def test_holm(values: list[float], level: float) -> None:
    """It finds what Bonferroni does at least, nothing above the level, and the least first."""
    found = holm(values, level)
    for value, is_found in zip(values, found, strict=True):
        assert is_found or value > level / len(values)
        assert not is_found or value <= level
        assert not is_found or all(f for v, f in zip(values, found, strict=True) if v < value)
    assert holm([0.01, 0.04, 0.03], 0.05) == [True, False, False]
    assert holm([0.01, 0.02, 0.03], 0.05) == [True, True, True]
