"""The untuned kernels: each computes what it should."""

from __future__ import annotations

import pytest

from benchmarks.aibench8.tasks import TASKS
from tests.interpreter import Interpreter


@pytest.mark.slow
def test_right(interpreter: Interpreter) -> None:
    """Every untuned kernel is within its tolerance of float64, over odd sizes and loops."""
    found = interpreter.call("tests.benchmarks.interpreted_baselines:errors")
    assert {what.split()[0] for what in found} == set(TASKS)
    assert {what: error for what, error in found.items() if not error <= 1} == {}
