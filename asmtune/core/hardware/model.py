"""`Target`: one device's limits and rates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from asmtune.base.errors import TargetError
from asmtune.core.hardware.words import did_you_mean, short

ARCH = {"cuda": r"sm_(\d{2,3})[af]?", "hip": r"gfx[0-9a-f]{3,5}"}
"""Form of an architecture's name, by backend."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a descriptor and where it comes from.

    Attributes:
        value: The number, in the unit its field name states.
        source: The document and place it was taken from, or how it was derived.
        kind: "specified" by the vendor, "measured", "derived" from other figures,
            or "user" (a bare value in a user's file).
    """

    value: float
    source: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One device: limits for feasibility and occupancy, rates for rooflines.

    Rates are the vendor's dense peaks at boost clock, with FP32 accumulation where the
    device distinguishes: that is what Triton asks for. `measured_*` are rates that a
    real device reached, for whoever wants an attainable ceiling.

    `warp_allocation_granularity` is the number of partitions an SM's registers are split
    into. Where the vendor states tensor rates at another clock than `clock_hz`, the
    source of `clock_hz` says so.
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
    measured_dram_bytes_per_s: float | None = None
    measured_tensor_flops_per_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    figures: Mapping[str, Figure] = field(default_factory=dict, repr=False, compare=False)

    @property
    def capability(self) -> int:
        """CUDA compute capability as Triton writes it: 90 for "sm_90".

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
    def shared_bytes_per_s(self) -> float:
        """Shared memory bandwidth of the whole device, in bytes a second."""
        return self.shared_bytes_per_clock_per_sm * self.sms * self.clock_hz

    @property
    def issue_slots_per_s(self) -> float:
        """Warp instructions the whole device can issue in a second."""
        return self.issue_slots_per_clock_per_sm * self.sms * self.clock_hz

    @property
    def special_functions_per_s(self) -> float:
        """Results of exp2, log2, rcp and the like the whole device gives in a second."""
        return self.special_functions_per_clock_per_sm * self.sms * self.clock_hz

    def flops_per_s(self, dtype: str) -> float:
        """Peak rate for operands of a type, in flops a second.

        Args:
            dtype: "fp32" for the ordinary cores, else a key of `tensor_flops_per_s`.

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
        """Return a field's number with its source.

        Args:
            name: A numeric field, or one entry of a table: "tensor_flops_per_s.bf16".

        Raises:
            TargetError: The descriptor has no such figure.
        """
        if name not in self.figures:
            hint = did_you_mean(name, self.figures)
            raise TargetError(f"{self.name} has no figure {short(name)}{hint}")
        return self.figures[name]

    def source(self, name: str) -> str:
        """Return the source of a figure; names as for `figure`."""
        return self.figure(name).source
