"""What the GPU's management library tells, over a library of known answers, and without any."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from asmtune.measure.timing.nvml import THROTTLES, read_clocks

UUID = "c5b8d0a2-7a1e-4b52-9a4f-0d4b1f5a8e11"


class FakeError(Exception):
    """As `pynvml.NVMLError`."""


@dataclass
class Library:
    """`pynvml` with the answers of a known device; others are not supported.

    Attributes:
        answers: by name and arguments of `nvmlDeviceGet...`; called where they can be.
        error: raised at the start.
    """

    answers: dict[tuple[Any, ...], Any]
    error: Exception | None = None
    asked: list[str] = field(default_factory=list)

    def module(self) -> ModuleType:
        """Make the module that `import pynvml` gives."""
        made = ModuleType("pynvml")
        names = {"NVMLError": FakeError, "NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2}
        names |= {"NVML_TEMPERATURE_GPU": 0, "nvmlInit": self._init}
        for name, value in names.items():
            setattr(made, name, value)
        made.__getattr__ = self._getter  # type: ignore[method-assign]
        return made

    def _init(self) -> None:
        if self.error is not None:
            raise self.error

    def _getter(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)

        def get(*arguments: Any) -> Any:
            if name == "nvmlDeviceGetHandleByUUID":
                self.asked.append(arguments[0])
                return "handle"
            assert arguments[0] == "handle"
            key = (name.removeprefix("nvmlDeviceGet"), *arguments[1:])
            if key not in self.answers:
                raise FakeError("not supported")
            answer = self.answers[key]
            return answer() if callable(answer) else answer

        return get


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA device with a UUID."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    properties = SimpleNamespace(uuid=UUID)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def install(monkeypatch: pytest.MonkeyPatch, library: Library) -> Library:
    monkeypatch.setitem(sys.modules, "pynvml", library.module())
    return library


CLOCKS: dict[tuple[Any, ...], Any] = {
    ("ClockInfo", 1): 1755,
    ("MaxClockInfo", 1): 1980,
    ("ClockInfo", 2): 3201,
    ("MaxClockInfo", 2): 3201,
    ("Temperature", 0): 41,
    ("PowerUsage",): 612_345,
    ("CurrentClocksThrottleReasons",): 0x4 | 0x20,
}


@pytest.mark.usefixtures("device")
def test_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks, temperature, power in watts, and throttling in words, of PyTorch's device."""
    library = install(monkeypatch, Library(CLOCKS))
    assert read_clocks() == {
        "sm_mhz": 1755,
        "sm_max_mhz": 1980,
        "memory_mhz": 3201,
        "memory_max_mhz": 3201,
        "temperature_c": 41,
        "power_w": 612.345,
        "throttled_by": ["power cap", "software thermal slowdown"],
    }
    assert library.asked == [f"GPU-{UUID}"]


@pytest.mark.usefixtures("device")
def test_what_is_not_supported_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that tells only its clock and that nothing holds it back gives these."""
    answers = {("ClockInfo", 1): 1980, ("CurrentClocksThrottleReasons",): 0}
    install(monkeypatch, Library(answers))
    assert read_clocks() == {"sm_mhz": 1980, "throttled_by": []}


@pytest.mark.usefixtures("device")
def test_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that cannot start tells nothing, and raises nothing."""
    install(monkeypatch, Library(CLOCKS, error=FakeError("driver not loaded")))
    assert read_clocks() == {}


@pytest.mark.usefixtures("device")
def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `nvidia-ml-py` there are no clocks."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_clocks() == {}


def test_reasons_are_nvmls() -> None:
    """Each bit stands for what `pynvml` calls by the same number."""
    pynvml = pytest.importorskip("pynvml")
    named = {
        getattr(pynvml, name): name
        for name in dir(pynvml)
        if name.startswith("nvmlClocksThrottleReason") and not name.endswith(("None", "All"))
    }
    assert set(THROTTLES) <= set(named)
    assert "SwPowerCap" in named[4]
    assert (THROTTLES[4], THROTTLES[1 << 6]) == ("power cap", "hardware thermal slowdown")
    assert "HwThermalSlowdown" in named[1 << 6]
