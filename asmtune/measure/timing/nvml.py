"""Reads clocks and names from NVIDIA's management library; `nvidia-ml-py` is optional."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import MeasureError

if TYPE_CHECKING:
    pass

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
"""Reasons why the clocks are not higher, by bit (nvml.h, nvmlClocksEventReason*)."""


class Nvml:
    """Reads PyTorch's current CUDA device through NVML: `pynvml`, initialised, and its handle."""

    def __init__(self, library: Any, handle: Any) -> None:
        self.library = library
        self._handle = handle

    @classmethod
    def current(cls) -> Nvml | None:
        """Open the current device; None without `nvidia-ml-py`, its driver or a GPU."""
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
        """Call `nvmlDeviceGet<name>`; None if this device does not support it."""
        try:
            getter: Callable[..., Any] = getattr(self.library, f"nvmlDeviceGet{name}")
            return getter(self._handle, *arguments)
        except self.library.NVMLError:
            return None


def read_clocks() -> dict[str, Any]:
    """Read how PyTorch's current GPU runs at this moment, which may explain a timing.

    Returns:
        `sm_mhz`, `sm_max_mhz`, `memory_mhz`, `memory_max_mhz`, `temperature_c`, `power_w`
        and `throttled_by`, a list of reasons. Values that the device does not report are left out.
        Empty without NVML.
    """
    nvml = Nvml.current()
    if nvml is None:
        return {}
    readings: dict[str, Any] = {}
    library = nvml.library
    for name, which in (("sm", library.NVML_CLOCK_SM), ("memory", library.NVML_CLOCK_MEM)):
        readings[f"{name}_mhz"] = nvml.read("ClockInfo", which)
        readings[f"{name}_max_mhz"] = nvml.read("MaxClockInfo", which)
    readings["temperature_c"] = nvml.read("Temperature", library.NVML_TEMPERATURE_GPU)
    milliwatts = nvml.read("PowerUsage")
    readings["power_w"] = None if milliwatts is None else milliwatts / 1000
    bits = nvml.read("CurrentClocksThrottleReasons")
    if bits is not None:
        readings["throttled_by"] = [text for bit, text in THROTTLES.items() if bits & bit]
    return {name: value for name, value in readings.items() if value is not None}


_DRIVER_FILE = Path("/proc/driver/nvidia/version")


NO_GPU: Final = (
    "this machine has none; `asmtune prune-report` works without one, and with "
    "TRITON_INTERPRET=1 kernels run on the CPU"
)
"""The end of a message that says what needs a GPU."""


def device_name(index: int | None = None) -> str:
    """Return the name of a CUDA device (by default the current one), as its driver gives it.

    A device of another backend of Triton's is named by its backend and architecture.

    Raises:
        MeasureError: there is no GPU.
    """
    import torch

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name(index))
    other = _other_backend()
    if other is None:
        raise MeasureError(f"launching and timing kernels needs a CUDA GPU; {NO_GPU}")
    return other


def _other_backend() -> str | None:
    """Name the device of Triton's active driver; None where no driver is active."""
    from asmtune.triton_api.launching import active_machine

    machine = active_machine()
    return None if machine is None else f"{machine[0]} {machine[1]}"


def driver_version() -> str:
    """Return the version of NVIDIA's driver, or "unknown"."""
    try:
        text = _DRIVER_FILE.read_text()
    except OSError:
        return "unknown"
    match = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return match.group(1) if match else "unknown"
