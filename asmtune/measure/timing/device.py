"""Which GPU this is, and what drives it."""

from __future__ import annotations

import re
from pathlib import Path

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
