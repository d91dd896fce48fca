"""The count of false alarms, and the table of it in the document."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from asmtune.workshop.regression.run import run_to_json
from benchmarks import false_alarms
from benchmarks.false_alarms import DOCUMENT, FILE, RECORDED, rewritten
from tests.workshop.regression.bench_runs import HOW, rows_of, simulated

MADE = {"device": "NVIDIA H200", "driver": "1", "triton": "3", "torch": "2", "date": "2026-01-02"}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Count over simulated processes that drift: the second half is 1% slower."""
    pool = simulated(0, processes=32, **rows_of(3))
    document = run_to_json(pool)
    for row in document["rows"]:
        row["samples"][16:] = [[1.01 * us for us in one] for one in row["samples"][16:]]
    path = tmp_path_factory.mktemp("recorded") / "bench_runs.json.gz"
    text = json.dumps({"provenance": MADE, "run": document, "ended_s": [2.0, 64.0]})
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(false_alarms, "RECORDED", path)
        return false_alarms.results(draws=100)


@pytest.mark.slow
def test_what_is_counted(counted: dict[str, Any]) -> None:
    """Drift makes alarms of runs one after another; the threshold ends them; samples make more."""
    assert (counted["processes"], counted["rows"]) == (32, 3)
    assert (counted["drawn"]["checks"], counted["consecutive"]["checks"]) == (100, 12)
    assert counted["drawn"]["slower"]["none"] <= 0.05
    assert counted["drawn"]["slower"]["3%"] == counted["consecutive"]["slower"]["3%"] == 0
    assert counted["consecutive_by_samples"]["slower"]["none"] > 0.3
    assert counted["planted"]["1%"] == 0
    assert counted["planted"]["8%"] >= 0.95
    assert 0.003 < counted["noise"][0]["sd_of_processes"] < 0.02


def test_the_table(counted: dict[str, Any]) -> None:
    """It stands between the marks, and putting it there again changes nothing."""
    text = rewritten(DOCUMENT.read_text(), counted)
    assert "32 processes one after another on one NVIDIA H200 (driver 1, triton 3" in text
    assert "3 rows, 32.0 s a process; runs of 8 processes" in text
    assert rewritten(text, counted) == text
    before, _, after = text.partition("## How often it is wrong")
    assert DOCUMENT.read_text().startswith(before)
    assert "One limit remains." in after


def test_the_document_is_that_of_the_results() -> None:
    """What stands between the marks is what the command makes of the committed file."""
    if not RECORDED.is_file():
        pytest.skip(HOW)
    found = json.loads(FILE.read_text())
    assert rewritten(DOCUMENT.read_text(), found) == DOCUMENT.read_text()
