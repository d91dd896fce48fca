"""`Target`: a device's limits and rates, and the rates that no descriptor states."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from asmtune.base.errors import TargetError
from asmtune.base.text import did_you_mean, shortened


def plain(name: str) -> str:
    """Normalise case and runs of spaces of a name."""
    return " ".join(name.casefold().split())


def short(value: object) -> str:
    """Format a value as Python source, cut to 80 characters."""
    return shortened(repr(value), 80)


def label(name: str) -> str:
    """Escape a field's name for a one-line message: a key of a user's file may hold newlines."""
    return name if name.isprintable() else short(name)


ARCH = {"cuda": r"sm_(\d{2,3})[af]?", "hip": r"gfx[0-9a-f]{3,5}"}
"""Patterns of architecture names, by backend."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a descriptor with its source.

    Attributes:
        value: The number, in the unit its field name states.
        source: The document and place it was taken from, or how it was derived.
        kind: "specified" by the vendor, "measured", "derived" from other figures, "driver" (an
            attribute of the device here), "architecture" (a limit of its compute capability), or
            "user" (a bare value in a user's file).
    """

    value: float
    source: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A device: limits for feasibility and occupancy, rates for rooflines.

    Rates are the vendor's dense peaks at boost clock, with FP32 accumulation where the
    device distinguishes, as Triton uses. `measured_*` are rates that a real device reached:
    an attainable ceiling. `measured_launch_us` is the time of a launch of an empty kernel.

    `warp_allocation_granularity` is the number of partitions an SM's registers are split
    into. Where the vendor states tensor rates at another clock than `clock_hz`, the
    source of `clock_hz` says so.

    On an AMD device an SM is a compute unit, a warp a wavefront, shared memory the LDS, and a
    register a VGPR or AGPR. Fields of AMD devices alone: `scalar_registers_per_partition` and
    `scalar_allocation_unit` are SGPRs of a SIMD and those that a wavefront gets at a time, and
    `l1_bytes` is an L1 beside the LDS, where NVIDIA's is a part of the same memory.
    """

    name: str
    aliases: tuple[str, ...]
    arch: str
    backend: str
    warp_size: int
    sms: int
    clock_hz: float
    registers_per_sm: int
    max_registers_per_thread: int
    register_allocation_unit: int
    warp_allocation_granularity: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    shared_reserved_bytes_per_block: int
    shared_allocation_unit_bytes: int
    max_warps_per_sm: int
    max_threads_per_block: int
    max_blocks_per_sm: int
    l2_bytes: int
    dram_bytes: int
    dram_bytes_per_s: float
    l2_bytes_per_s: float
    shared_bytes_per_clock_per_sm: int
    issue_slots_per_clock_per_sm: int
    special_functions_per_clock_per_sm: int
    fp32_flops_per_s: float
    tensor_flops_per_s: Mapping[str, float] = field(hash=False)
    tensor_memory_bytes_per_sm: int | None = None
    scalar_registers_per_partition: int | None = None
    scalar_allocation_unit: int | None = None
    l1_bytes: int | None = None
    measured_dram_bytes_per_s: float | None = None
    measured_tensor_flops_per_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    measured_launch_us: float | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict, repr=False, compare=False)

    @property
    def capability(self) -> int:
        """Return the CUDA compute capability as Triton writes it: 90 for "sm_90".

        Raises:
            TargetError: The target is not a CUDA device.
        """
        match = re.fullmatch(ARCH["cuda"], self.arch)
        if match is None:
            raise TargetError(
                f"{self.name}: arch {self.arch!r} has no CUDA compute capability; use a CUDA target"
            )
        return int(match[1])

    @property
    def machine(self) -> tuple[str, int | str, int]:
        """Return backend, architecture and warp size as Triton has them: ("hip", "gfx942", 64)."""
        arch = self.capability if self.backend == "cuda" else self.arch
        return self.backend, arch, self.warp_size

    @property
    def caution(self) -> str:
        """Return the caution that goes with every prediction for the device, or an empty text."""
        if self.backend == "cuda":
            return ""
        return "predicted from its assembly and data sheet; never run on hardware"

    def l1_room(self, shared_bytes: Any) -> Any:
        """Return the bytes of an SM's L1 beside the shared memory that programs take, or rows."""
        return self.l1_bytes or self.shared_bytes_per_sm - shared_bytes

    def flops_per_s(self, dtype: str) -> float:
        """Return the peak flops per second of "fp32", or of a key of `tensor_flops_per_s`.

        Raises:
            TargetError: The device has no rate for the type.
        """
        if dtype == "fp32":
            return self.fp32_flops_per_s
        if dtype not in self.tensor_flops_per_s:
            known = ", ".join(["fp32", *self.tensor_flops_per_s])
            raise TargetError(f"{self.name} has no rate for {short(dtype)}; it has {known}")
        return self.tensor_flops_per_s[dtype]

    def figure(self, name: str) -> Figure:
        """Return a numeric field, or an entry of a table ("tensor_flops_per_s.bf16"), with source.

        Raises:
            TargetError: The descriptor has no such figure.
        """
        if name not in self.figures:
            hint = did_you_mean(name, self.figures)
            raise TargetError(f"{self.name} has no figure {short(name)}{hint}")
        return self.figures[name]


def apart(one: Target, other: Target) -> tuple[float, ...] | None:
    """Return how far two devices are apart, to sort by; None for devices of two vendors.

    The architecture counts first (its generation, then its variant), then the ratio of SMs, then
    that of memory bandwidth.
    """
    if one.backend != other.backend:
        return None
    (generation, variant), (other_generation, other_variant) = map(_architecture, (one, other))
    return (
        abs(generation - other_generation),
        abs(variant - other_variant),
        abs(math.log2(one.sms / other.sms)),
        abs(math.log2(one.dram_bytes_per_s / other.dram_bytes_per_s)),
    )


def _architecture(target: Target) -> tuple[int, int]:
    """Return an architecture's numbers: (9, 0) of sm_90, (9, 0x42) of gfx942."""
    if target.backend == "cuda":
        return divmod(target.capability, 10)
    return int(target.arch[3:-2], 16), int(target.arch[-2:], 16)


L2_BYTES_PER_CYCLE: Final = 64.0
"""The most bytes between one SM and L2 in a cycle (L1's line fill on sm_80 and newer)."""

LAUNCH_US: Final = 4.5
"""Least time between two events around a launch on an H200."""

DRAM_SHARE: Final = 0.88
"""Share of the datasheet's DRAM rate that a copy reaches, if none was measured (H200: 0.885)."""


def dram_rate(target: Target) -> float:
    """Return the bytes a second that DRAM gives in practice."""
    measured = target.measured_dram_bytes_per_s
    # More than is stated was measured elsewhere: the descriptor is another device's, edited.
    if measured is None or measured > target.dram_bytes_per_s:
        return DRAM_SHARE * target.dram_bytes_per_s
    return measured


MMA_SYNC_SHARE: Final = {9: 0.65, 10: 0.5}
"""Share of the tensor rate that mma.sync reaches, by major capability; 1 elsewhere.

On H100 it is 62-65% (Luo et al.). On sm_100 only tcgen05 reaches the rate; 0.5 is assumed.
"""

_DTYPES: Final = {
    "f16": "fp16",
    "bf16": "bf16",
    "tf32": "tf32",
    "s8": "int8",
    "u8": "int8",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "f64": "fp64",
    "f32": "fp32",
    "xf32": "tf32",
    "e2m3": "fp6",
    "e3m2": "fp6",
    "e2m1": "fp4",
}


def tensor_rate(target: Target, kind: str, operand: str) -> float:
    """Return the FLOPs per cycle of one SM's tensor cores.

    Args:
        target: the device.
        kind: the instruction's family, as `asm.TensorOp.kind`.
        operand: element type of A; a type without a rate counts as fp16.
    """
    rates = target.tensor_flops_per_s
    rate = rates.get(_DTYPES.get(operand, "fp16"), rates["fp16"])
    if target.backend == "cuda" and kind in ("mma.sync", "wmma"):
        rate *= MMA_SYNC_SHARE.get(target.capability // 10, 1.0)
    return rate / target.sms / target.clock_hz
