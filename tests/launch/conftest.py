"""The launcher over a fake driver."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from asmtune.runtime.launch.planning import native
from tests.launch.fakes import FakeDriver


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    """A driver that takes notes."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) on this machine")
    return FakeDriver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="session")
def c_part(driver: FakeDriver) -> Any:
    """The C part, as built here."""
    return native(str(driver.path))
