"""Names the GPU and its driver."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from asmtune.base.errors import NoGpuError

_DRIVER_FILE = Path("/proc/driver/nvidia/version")


NO_GPU: Final = (
    "this machine has none; `asmtune prune-report` works without one, and with "
    "TRITON_INTERPRET=1 kernels run on the CPU"
)
"""The end of a message that says what needs a GPU."""


def device_name() -> str:
    """Return the name of the current CUDA device, as its driver gives it.

    A device of another backend of Triton's is named by its backend and architecture.

    Raises:
        NoGpuError: there is no GPU.
    """
    import torch

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    other = _other_backend()
    if other is None:
        raise NoGpuError(f"launching and timing kernels needs a CUDA GPU; {NO_GPU}")
    return other


def _other_backend() -> str | None:
    """Name the device of Triton's active driver; None where no driver is active."""
    from asmtune.triton_api.launching import active_machine

    machine = active_machine()
    return None if machine is None else f"{machine[0]} {machine[1]}"


def installed_devices() -> frozenset[str]:
    """Return the names of NVIDIA's GPUs in this machine by their driver's files; load nothing."""
    files = _DRIVER_FILE.parent.glob("gpus/*/information")
    found = (re.search(r"^Model:\s*(.+?)\s*$", file.read_text(), re.MULTILINE) for file in files)
    return frozenset(match[1] for match in found if match)


def driver_version() -> str:
    """Return the version of NVIDIA's driver, or "unknown"."""
    try:
        text = _DRIVER_FILE.read_text()
    except OSError:
        return "unknown"
    match = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return match.group(1) if match else "unknown"
