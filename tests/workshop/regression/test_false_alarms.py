"""The count of false alarms, and the table of it in the document."""

from __future__ import annotations

import json

import pytest

from benchmarks.false_alarms import DOCUMENT, FILE, RECORDED, alarms, drawn, planted, rewritten
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


def test_the_document_is_that_of_the_results() -> None:
    """Between the marks is what the command makes of the committed file."""
    if not RECORDED.is_file():
        pytest.skip(HOW)
    found = json.loads(FILE.read_text())
    assert rewritten(DOCUMENT.read_text(), found) == DOCUMENT.read_text()
