"""What a check finds of real noise: planted slowdowns, and nothing where nothing has changed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from scipy.stats import binom

from asmtune.workshop.regression.compare import Terms, compare
from asmtune.workshop.regression.run import BenchRun
from tests.workshop.regression.bench_runs import (
    HOW,
    RECORDED,
    condensed,
    part_of,
    recorded,
    rows_of,
    scaled,
    simulated,
)

PROCESSES = 8
LEVEL = 0.01
NO_THRESHOLD = Terms(threshold=1e-9, level=LEVEL)


def _simulated() -> BenchRun:
    return simulated(3, processes=64, **rows_of(8))


def _recorded() -> BenchRun:
    if not RECORDED.is_file():
        pytest.skip(HOW)
    return recorded()


@pytest.fixture(params=[_simulated, _recorded], ids=["simulated", "h200"], scope="module")
def pool(request: pytest.FixtureRequest) -> BenchRun:
    """Many processes that timed the same kernels."""
    make: Callable[[], BenchRun] = request.param
    return make()


def drawn(pool: BenchRun, source: random.Random) -> tuple[BenchRun, BenchRun]:
    """Two runs of processes of one distribution, each process in one of them at most."""
    places = source.sample(range(len(pool.processes)), 2 * PROCESSES)
    return part_of(pool, places[:PROCESSES]), part_of(pool, places[PROCESSES:])


def test_the_level_is_held(pool: BenchRun) -> None:
    """Without a threshold, checks of unchanged kernels find one slower as often as stated.

    500 draws, each looked at in both directions; more than a rate of 1% would give once in a
    thousand tries are too many. Without Holm's correction a check of 14 rows finds 13%.
    """
    source, medians, draws = random.Random(0), condensed(pool), 500
    checks = [compare(*drawn(medians, source), NO_THRESHOLD) for _ in range(draws)]
    assert all("not judged" not in check.counts for check in checks)
    found = sum((check.outcome == "slower") + ("faster" in check.counts) for check in checks)
    assert found <= binom.ppf(0.999, 2 * draws, LEVEL)


def test_planted_slowdown_is_found(pool: BenchRun) -> None:
    """5% more in every sample of one kernel is found in nearly each row, and of that row alone."""
    source = random.Random(2)
    found = 0
    tries = [(row.subject, *drawn(pool, source)) for row in pool.rows for _ in range(5)]
    for subject, base, run in tries:
        planted = scaled(run, 1.05, lambda s, own=subject.identity: s.identity == own)
        check = compare(base, planted, Terms())
        slower = [f.subject.identity for f in check.findings if f.verdict == "slower"]
        assert slower in ([], [subject.identity])
        found += len(slower)
    assert found >= 0.95 * len(tries)


def test_runs_one_after_another(pool: BenchRun) -> None:
    """Runs as they are made, of consecutive processes, find no slowdown against each other."""
    starts = range(0, len(pool.processes) - PROCESSES + 1, PROCESSES)
    runs = [part_of(pool, range(start, start + PROCESSES)) for start in starts]
    pairs = [(base, run) for base in runs for run in runs if base is not run]
    assert {compare(*pair, Terms()).outcome for pair in pairs} == {"fine"}
