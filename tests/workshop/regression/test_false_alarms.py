"""The count of false alarms, and the table of it in the document."""

from __future__ import annotations

import json

import pytest

from benchmarks.false_alarms import DOCUMENT, FILE, RECORDED, rewritten
from tests.workshop.regression.bench_runs import HOW


def test_the_document_is_that_of_the_results() -> None:
    """Between the marks is what the command makes of the committed file."""
    if not RECORDED.is_file():
        pytest.skip(HOW)
    found = json.loads(FILE.read_text())
    assert rewritten(DOCUMENT.read_text(), found) == DOCUMENT.read_text()
