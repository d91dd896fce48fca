"""What the GPU's management library tells, over a library of known answers, and without any."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from asmtune.workshop.regression.process_main import read_clocks


class FakeError(Exception):
    """As `pynvml.NVMLError`."""


def library(reasons: int | None = 0, error: Exception | None = None) -> Any:
    """Make a `pynvml` of a device at 1755 MHz; no reasons are not supported."""

    def start() -> None:
        if error is not None:
            raise error

    def held_back(_: str) -> int:
        if reasons is None:
            raise FakeError("not supported")
        return reasons

    handles = {"GPU-c5b8": "handle"}
    clocks = {("handle", 1): 1755}
    return SimpleNamespace(
        NVMLError=FakeError,
        NVML_CLOCK_SM=1,
        nvmlInit=start,
        nvmlDeviceGetHandleByUUID=handles.__getitem__,
        nvmlDeviceGetClockInfo=lambda *key: clocks[key],
        nvmlDeviceGetCurrentClocksThrottleReasons=held_back,
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            library(0x1 | 0x4 | 0x20),
            {"sm_mhz": 1755, "throttled_by": ["power cap", "software thermal slowdown"]},
        ),
        (library(), {"sm_mhz": 1755, "throttled_by": []}),
        (library(reasons=None), {"sm_mhz": 1755}),
        (library(error=FakeError("driver not loaded")), {}),
        (None, {}),
    ],
)
def test_clocks(given: Any, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of PyTorch's device, and what holds it back; what is not supported is left out."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    properties = SimpleNamespace(uuid="c5b8")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setitem(sys.modules, "pynvml", given)
    assert read_clocks() == expected
