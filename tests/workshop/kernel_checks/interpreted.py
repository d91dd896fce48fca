"""Trials, and tests that `asmtune new` has written, for a process with Triton's interpreter."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

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


def run_benchmark(folder: str, name: str, gpu: bool, *options: str) -> tuple[int, str]:
    """Run a kernel's benchmark; return its exit code and what it prints.

    A `gpu` is the interpreter, on which the kernel takes 2 ms and PyTorch 3.
    """
    times = iter(cycle((2.0, 3.0)))
    with ExitStack() as held:
        held.callback(sys.path.remove, folder)
        sys.path.insert(0, folder)
        bench = importlib.import_module(f"bench_{name}")
        module, inputs = bench.module, bench.module.inputs
        cuda = SimpleNamespace(is_available=lambda: gpu)
        held.enter_context(patch.object(bench, "torch", SimpleNamespace(cuda=cuda)))
        held.enter_context(patch.object(module, "SHAPES", ({"M": 8, "N": 16},)))
        on_cpu = partial(_on_cpu, inputs)
        held.enter_context(patch.object(module, "inputs", on_cpu))
        held.enter_context(patch("triton.testing.do_bench", lambda *_, **__: next(times)))
        held.enter_context(patch.object(sys, "argv", ["bench", *options]))
        out = held.enter_context(contextlib.redirect_stdout(io.StringIO()))
        code = bench.main()
    return code, out.getvalue()


def _on_cpu(inputs: Callable[..., Any], shape: Any, dtype: str, device: str) -> Any:
    assert device == "cuda"
    return inputs(shape, dtype, "cpu")
