"""The launcher over a fake driver."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from asmtune.kernels import _split
from asmtune.runtime import call_trace
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


@pytest.fixture
def workspace(driver: FakeDriver) -> Iterator[Callable[[torch.device, int], Any]]:
    """Memory for split sums, which is kept for one test, over a driver of kernels of any size."""
    rooms: dict[int, Any] = {}

    def room(device: torch.device, size: int) -> Any:
        if size not in rooms:
            rooms[size] = _split._new(device, size)
            call_trace.keep_alive(*rooms[size])
        return rooms[size]

    kept = dict(call_trace._persistent)
    driver.expect([8])
    driver.capture(0)
    yield room
    call_trace._persistent.clear()
    call_trace._persistent.update(kept)
