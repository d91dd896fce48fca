"""The device at hand as its CUDA driver describes it, and the target that follows from that."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.errors import TargetError
from asmtune.core.hardware.descriptor import Raw, complete, nearest_known, target_of
from asmtune.core.hardware.model import Target, plain

if TYPE_CHECKING:
    from ctypes import CDLL

LIBRARY: Final = "libcuda.so.1"

ATTRIBUTES: Final = {
    "max_threads_per_block": 1,
    "warp_size": 10,
    "clock_khz": 13,
    "sms": 16,
    "integrated": 18,
    "memory_clock_khz": 36,
    "bus_bits": 37,
    "l2_bytes": 38,
    "max_threads_per_sm": 39,
    "major": 75,
    "minor": 76,
    "shared_bytes_per_sm": 81,
    "registers_per_sm": 82,
    "shared_bytes_per_block": 97,
    "max_blocks_per_sm": 106,
    "shared_reserved_bytes_per_block": 111,
}
"""Numbers of the driver's attributes (cuda.h, CU_DEVICE_ATTRIBUTE_*), by our names for them."""

_LIMITS: Final = (
    "warp_size",
    "registers_per_sm",
    "shared_bytes_per_sm",
    "shared_bytes_per_block",
    "shared_reserved_bytes_per_block",
    "max_threads_per_block",
    "max_blocks_per_sm",
)
_MAY_BE_ZERO: Final = frozenset({"shared_reserved_bytes_per_block", "integrated", "minor"})


@dataclass(frozen=True)
class DeviceAttributes:
    """Attributes of one device, as its driver tells them.

    Attributes:
        name: the device's name.
        values: attributes by our names, and `dram_bytes`; those that it does not tell are missing.
    """

    name: str
    values: Mapping[str, int]

    @property
    def sms(self) -> int | None:
        """Number of SMs."""
        return self.values.get("sms")

    def target(self, relatives: Sequence[Target]) -> Target | None:
        """Derive the target: limits by the driver, rates by the architecture.

        What neither tells is that of the nearest of `relatives`, in proportion to SMs. None if
        the driver tells neither compute capability, SMs nor clock, or if the device is older
        than every architecture that is known.
        """
        where = f"driver's attributes of {self.name}"
        try:
            return target_of(self.descriptor(relatives), where)
        except TargetError:
            return None

    @property
    def remark(self) -> str:
        """Say whose rates are used for an architecture newer than the table; else ""."""
        own = (self.values.get("major", 0), self.values.get("minor", 0))
        known = nearest_known(*own)
        if known is None or known == own:
            return ""
        return (
            f"{self.name}: compute capability {own[0]}.{own[1]} is newer than those that are "
            f"known; the rates of {known[0]}.{known[1]} are used instead (write its own into a "
            "descriptor: `asmtune targets show --format json` makes one to edit)"
        )

    def descriptor(self, relatives: Sequence[Target]) -> Raw:
        """Return the fields of a descriptor, each figure with its source and kind.

        Raises:
            TargetError: something is missing that has to be known.
        """
        values = self.values
        missing = [name for name in ("major", "minor", "sms", "clock_khz") if name not in values]
        if missing:
            raise TargetError(f"the driver does not tell {', '.join(missing)} of {self.name}")
        stated: Raw = {
            "name": self.name,
            "aliases": [],
            "arch": f"sm_{values['major']}{values['minor']}",
            "sms": self._figure("sms"),
            "clock_hz": _by_driver(values["clock_khz"] * 1e3, "clock rate"),
            "geforce": "geforce" in plain(self.name) or "titan" in plain(self.name),
        }
        stated |= {name: self._figure(name) for name in _LIMITS if name in values}
        if "max_threads_per_sm" in values:
            warps = values["max_threads_per_sm"] // values.get("warp_size", 32)
            stated["max_warps_per_sm"] = _by_driver(warps, "threads of an SM / threads of a warp")
        like = _relative(stated, relatives)
        memory = {name: self._figure(name) for name in ("l2_bytes", "dram_bytes") if name in values}
        stated |= {**_scaled(like, self.name, values["sms"]), **memory, **self._bandwidth()}
        if not values.get("integrated") and "bus_bits" in values:
            stated["bus_bits"] = values["bus_bits"]
            del stated["l2_bytes_per_s"]
        whole = complete(stated)
        for name, figure in whole.items():
            if isinstance(figure, dict) and figure.get("kind") == "specified" and name != "sms":
                whole[name] = {**figure, "kind": "architecture"}
        return whole

    def _figure(self, name: str) -> Raw:
        return _by_driver(self.values[name], name.replace("_", " "))

    def _bandwidth(self) -> Raw:
        """Return the memory's bandwidth; nothing where the driver does not tell its clock.

        A device that shares the CPU's memory tells another clock than the memory's.
        """
        values = self.values
        if values.get("integrated") or not {"memory_clock_khz", "bus_bits"} <= values.keys():
            return {}
        mhz, bits = values["memory_clock_khz"] / 1e3, values["bus_bits"]
        figure = _by_driver(mhz * 1e6 * 2 * bits / 8, f"2 x {mhz:g} MHz x {bits} bits")
        return {"dram_bytes_per_s": figure}


def _by_driver(value: float, what: str) -> Raw:
    return {"value": value, "source": f"the driver's attribute: {what}", "kind": "driver"}


def _relative(stated: Raw, relatives: Sequence[Target]) -> Target:
    """Return the device of the nearest architecture that is nearest in SMs."""
    capability, sms = int(stated["arch"][3:]), stated["sms"]["value"]

    def apart(target: Target) -> tuple[bool, int, int]:
        newer = target.capability > capability
        return newer, abs(target.capability - capability), abs(target.sms - sms)

    return min(relatives, key=apart)


def _scaled(like: Target, name: str, sms: int) -> Raw:
    """Return the memory of another device in proportion to SMs, for what no driver tells."""
    source = f"the driver does not tell it of {name}; that of {like.name} by SMs ({sms}/{like.sms})"
    share = sms / like.sms
    return {
        field: {
            "value": type(getattr(like, field))(getattr(like, field) * share),
            "source": source,
            "kind": "derived",
        }
        for field in ("l2_bytes", "dram_bytes", "dram_bytes_per_s", "l2_bytes_per_s")
    }


def device_here(name: str) -> DeviceAttributes | None:
    """Return the attributes of a CUDA device of this machine by its name; None where none is used.

    The driver is asked only in a process that uses CUDA already through PyTorch: to initialise it
    here would break processes that are forked later.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized() or torch.version.hip:
        return None
    from asmtune.core.failures import guarded

    def asked() -> DeviceAttributes | None:
        current = torch.cuda.current_device()
        others = [index for index in range(torch.cuda.device_count()) if index != current]
        for index in (current, *others):
            if plain(torch.cuda.get_device_name(index)) == plain(name):
                return read_attributes(index)
        return None

    attributes = guarded("driver", asked)
    return attributes if isinstance(attributes, DeviceAttributes) else None


@cache
def read_attributes(index: int) -> DeviceAttributes:
    """Ask the driver for the attributes of a CUDA device, by PyTorch's index."""
    import torch

    properties = torch.cuda.get_device_properties(index)
    memory = {"dram_bytes": int(properties.total_memory)}
    return DeviceAttributes(str(properties.name), {**memory, **_asked(index)})


def _asked(index: int) -> dict[str, int]:
    """Ask the driver's library; return {} if it is missing."""
    import ctypes

    try:
        library: CDLL = ctypes.CDLL(LIBRARY)
        device, value = ctypes.c_int(), ctypes.c_int()
        if library.cuInit(0) or library.cuDeviceGet(ctypes.byref(device), index):
            return {}
        values: dict[str, int] = {}
        for name, number in ATTRIBUTES.items():
            failed = library.cuDeviceGetAttribute(ctypes.byref(value), number, device)
            if not failed and (value.value > 0 or (value.value == 0 and name in _MAY_BE_ZERO)):
                values[name] = value.value
    except (OSError, AttributeError):  # no library, or one that lacks a function
        return {}
    return values
