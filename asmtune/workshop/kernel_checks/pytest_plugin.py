"""A plugin for pytest; one line in a conftest.py loads it.

    pytest_plugins = ["asmtune.workshop.kernel_checks.pytest_plugin"]

It adds the fixtures `kernel_device` and `check_kernel`. A test that uses them runs its kernels on
the GPU where there is one, and else on the CPU under Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

from asmtune.base.errors import InputError
from asmtune.workshop.kernel_checks.devices import choose_device

if TYPE_CHECKING:
    from asmtune.workshop.kernel_checks.reports import TestReport

_DEVICE: Final = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Choose Triton's interpreter on a machine without a GPU, before Triton is imported."""
    try:
        config.stash[_DEVICE] = choose_device()
    except InputError as error:
        raise pytest.UsageError(f"asmtune: {error}") from error


@pytest.fixture(scope="session")
def kernel_device(pytestconfig: pytest.Config) -> str:
    """Return the device to make inputs on: "cuda", or "cpu" for the interpreter."""
    return pytestconfig.stash[_DEVICE]


@pytest.fixture
def check_kernel() -> Callable[..., TestReport]:
    """Return `kernel_checks.check_kernel`, which fails the test where a result is wrong."""
    from asmtune.workshop.kernel_checks.checks import check_kernel as check

    def checked(*arguments: Any, **options: Any) -> TestReport:
        __tracebackhide__ = True
        report = check(*arguments, **options)
        if report.wrong:
            pytest.fail(report.text(only_wrong=True), pytrace=False)
        return report

    return checked
