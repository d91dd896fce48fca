"""The count of false alarms, and the parts of the page that are made of it."""

from __future__ import annotations

import json

import pytest

from benchmarks.false_alarms import (
    FILE,
    PAGE,
    RECORDED,
    alarms,
    drawn,
    planted,
    recorded,
    rewritten,
    sample,
)
from tests.workshop.regression.bench_runs import HOW, rows_of, simulated


@pytest.mark.slow
def test_what_is_counted() -> None:
    """Processes of one distribution make no alarm at the threshold; a planted 8% is found."""
    pool = simulated(0, processes=32, **rows_of(3))
    counted = alarms(drawn(pool, 100))
    assert counted["checks"] == 100
    assert counted["slower"]["none"] <= 0.05
    assert counted["slower"]["3%"] == 0
    found = planted(pool, 50)
    assert found["1%"] == 0
    assert found["8%"] >= 0.95


def test_the_page_is_that_of_the_results() -> None:
    """Between the marks is what the command makes of the committed file."""
    if not RECORDED.is_file():
        pytest.skip(HOW)
    found, markdown = json.loads(FILE.read_text()), sample(recorded()[0])
    assert rewritten(PAGE.read_text(), found, markdown) == PAGE.read_text()
