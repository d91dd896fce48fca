"""A plugin for pytest: `pytest_plugins = ["asmtune.testing.pytest_plugin"]` in a conftest.py.

It adds the fixtures `kernel_device` and `check_kernel`. A test that uses them runs its kernels on
the GPU where there is one, and else on the CPU under Triton's interpreter. The summary at the end
counts the comparisons.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from asmtune.testing.checks import TestReport

_REPORTS: Final = pytest.StashKey[list["TestReport"]]()


def pytest_configure(config: pytest.Config) -> None:
    """Choose Triton's interpreter on a machine without a GPU, before Triton is imported."""
    config.stash[_REPORTS] = []
    if "TRITON_INTERPRET" not in os.environ and not _has_gpu():
        if "triton" in sys.modules:
            config.issue_config_time_warning(
                pytest.PytestConfigWarning(
                    "asmtune: Triton was imported before its interpreter could be chosen; set "
                    "TRITON_INTERPRET=1 to run kernels on this machine, which has no GPU"
                ),
                stacklevel=2,
            )
        os.environ["TRITON_INTERPRET"] = "1"


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="session")
def kernel_device() -> str:
    """Return the device to make inputs on: "cuda", or "cpu" for the interpreter."""
    is_interpreting = os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")
    return "cpu" if is_interpreting or not _has_gpu() else "cuda"


@pytest.fixture
def check_kernel(request: pytest.FixtureRequest) -> Callable[..., TestReport]:
    """Return `asmtune.testing.check_kernel`, which fails the test where a result is wrong."""
    from asmtune.testing.checks import check_kernel as check

    def checked(*arguments: Any, **options: Any) -> TestReport:
        __tracebackhide__ = True
        report = check(*arguments, **options)
        request.config.stash[_REPORTS].append(report)
        if report.wrong:
            pytest.fail(report.text(only_wrong=True), pytrace=False)
        return report

    return checked


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print how many comparisons were made in all."""
    reports = config.stash.get(_REPORTS, [])
    if reports:
        total = sum(len(report.comparisons) for report in reports)
        wrong = sum(len(report.wrong) for report in reports)
        terminalreporter.write_line(
            f"asmtune: {total} comparisons of {len(reports)} checks, {wrong} wrong"
        )
