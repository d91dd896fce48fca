"""Trials, and tests that `asmtune new` has written, for a process with Triton's interpreter."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from asmtune.workshop.kernel_checks.launches import TrialProcess

TRIALS = TrialProcess()


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """Answer a message of `asmtune diagnose`, as its own process does."""
    return TRIALS.answer(message)


class Outcomes:
    """Keeps the outcome of each test, and what a failed one says."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a test's outcome by its name; failures to set it up or collect it too."""
        if report.when == "call" or report.failed:
            self.kept[report.nodeid.rpartition("::")[2]] = report.longreprtext or report.outcome


def run_tests(folder: str, *options: str) -> dict[str, str]:
    """Run the tests of a folder; return "passed" or the failure of each."""
    outcomes = Outcomes()
    common = ("-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", "/dev/null")
    code = pytest.main([folder, "--rootdir", folder, *common, *options], plugins=[outcomes])
    assert code in (0, 1), code
    return outcomes.kept


def run_benchmarks(folder: str) -> dict[str, str]:
    """Run the benchmarks of a folder; return what each prints."""
    printed = {}
    sys.path.insert(0, folder)
    for path in Path(folder).glob("bench_*.py"):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            runpy.run_path(str(path), run_name="__main__")
        printed[path.stem.removeprefix("bench_")] = out.getvalue()
    sys.path.remove(folder)
    return printed
