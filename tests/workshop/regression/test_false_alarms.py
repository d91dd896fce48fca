"""What a check finds of real noise: planted slowdowns, and nothing where nothing has changed."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from asmtune.workshop.regression.run import BenchRun
from benchmarks.false_alarms import (
    LEVEL,
    alarms,
    consecutive,
    drawn,
    planted,
    recorded,
)
from tests.workshop.regression.bench_runs import rows_of, simulated


@pytest.fixture(params=["simulated", "h200"], scope="module")
def pool(request: pytest.FixtureRequest) -> BenchRun:
    """Many processes that timed the same kernels: of simulated noise, and of an H200's."""
    if request.param == "simulated":
        return simulated(3, processes=64, **rows_of(8))
    return recorded()[0]


def test_the_level_is_held(pool: BenchRun) -> None:
    """Without a threshold, checks of unchanged kernels find one slower as often as stated.

    More than a rate of 1% would give once in a thousand tries are too many. Without Holm's
    correction a check of 14 rows finds 13%.
    """
    draws = 500
    both_ways = [pair for base, run in drawn(pool, draws) for pair in ((base, run), (run, base))]
    found = alarms(both_ways)
    assert found["checks"] == 2 * draws
    assert found["slower"]["none"] * 2 * draws <= binom.ppf(0.999, 2 * draws, LEVEL)
    assert found["slower"]["3%"] == 0


@pytest.mark.slow
def test_planted_slowdown_is_found(pool: BenchRun) -> None:
    """5% more in every sample of one kernel is found in nearly each row, and 1% in none."""
    found = planted(pool, 5 * len(pool.rows))
    assert found["1%"] == 0
    assert found["5%"] >= 0.95


def test_runs_one_after_another(pool: BenchRun) -> None:
    """Runs as they are made, of consecutive processes, find no slowdown against each other."""
    assert alarms(consecutive(pool))["slower"]["3%"] == 0
