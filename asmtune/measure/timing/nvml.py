"""What NVIDIA's management library tells of a GPU; `nvidia-ml-py` is optional."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

THROTTLES: Final = {
    1 << 0: "idle",
    1 << 1: "application clocks",
    1 << 2: "power cap",
    1 << 3: "hardware slowdown",
    1 << 4: "sync boost",
    1 << 5: "software thermal slowdown",
    1 << 6: "hardware thermal slowdown",
    1 << 7: "power brake",
    1 << 8: "display clocks",
}
"""Why the clocks are not higher, by bit (nvml.h, nvmlClocksEventReason*)."""


class Nvml:
    """PyTorch's current CUDA device in NVML.

    Args:
        library: the module `pynvml`, initialised.
        handle: NVML's own of the device.
    """

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle

    @classmethod
    def current(cls) -> Nvml | None:
        """None without `nvidia-ml-py`, without its driver or without a GPU."""
        import torch

        try:
            import pynvml
        except ImportError:
            return None
        if not torch.cuda.is_available():
            return None
        uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
        try:
            pynvml.nvmlInit()
            # Not by index, which CUDA_VISIBLE_DEVICES changes for CUDA alone.
            return cls(pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
        except pynvml.NVMLError:
            return None

    def read(self, name: str, *arguments: Any) -> Any:
        """What `nvmlDeviceGet<name>` gives; None where this device does not support it."""
        try:
            getter: Callable[..., Any] = getattr(self._library, f"nvmlDeviceGet{name}")
            return getter(self._handle, *arguments)
        except self._library.NVMLError:
            return None

    def constant(self, name: str) -> Any:
        """A constant of NVML's by its name, such as `NVML_CLOCK_SM`."""
        return getattr(self._library, name)


def read_clocks() -> dict[str, Any]:
    """What may explain a timing: how PyTorch's current GPU runs at this moment.

    Returns:
        `sm_mhz`, `sm_max_mhz`, `memory_mhz`, `memory_max_mhz`, `temperature_c`, `power_w`
        and `throttled_by`, a list of reasons; what the device does not tell is left
        out. Empty without NVML.
    """
    nvml = Nvml.current()
    if nvml is None:
        return {}
    found: dict[str, Any] = {}
    for name, clock in (("sm", "NVML_CLOCK_SM"), ("memory", "NVML_CLOCK_MEM")):
        which = nvml.constant(clock)
        found[f"{name}_mhz"] = nvml.read("ClockInfo", which)
        found[f"{name}_max_mhz"] = nvml.read("MaxClockInfo", which)
    sensor = nvml.constant("NVML_TEMPERATURE_GPU")
    found["temperature_c"] = nvml.read("Temperature", sensor)
    milliwatts = nvml.read("PowerUsage")
    found["power_w"] = None if milliwatts is None else milliwatts / 1000
    bits = nvml.read("CurrentClocksThrottleReasons")
    if bits is not None:
        found["throttled_by"] = [text for bit, text in THROTTLES.items() if bits & bit]
    return {name: value for name, value in found.items() if value is not None}


_DRIVER_FILE = Path("/proc/driver/nvidia/version")


def device_name(index: int | None = None) -> str:
    """Name of a CUDA device (the current one by default), as its driver gives it."""
    import torch

    return str(torch.cuda.get_device_name(index))


def driver_version() -> str:
    """Version of NVIDIA's driver, or "unknown"."""
    try:
        text = _DRIVER_FILE.read_text()
    except OSError:
        return "unknown"
    found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return found.group(1) if found else "unknown"
