"""Cycles of one program on one SM: each unit's throughput, and the chain of latencies.

What the assembly does, weighted by how often it runs, over what the target's SM
can do a cycle. Constants of the hardware that no datasheet gives come from
microbenchmarks (Luo et al., "Dissecting the NVIDIA Hopper Architecture through
Microbenchmarking", 2024, for sm_80 to sm_90) or were measured on an H200 over
the recorded timings; each says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.asm import OpClass
from asmtune.features.execution import Run
from asmtune.features.profile import Profile, Segment, Traffic
from asmtune.target import Target
from asmtune.workload import Work

LOAD_LATENCY: Final = 700.0
"""Cycles of a load from L2 or DRAM under load (478 unloaded on H100, Luo et al.)."""

COPY_LATENCY: Final = 1500.0
"""Cycles from an asynchronous copy's issue until its tile is there: the slowest of many."""

BARRIER_LATENCY: Final = 45.0
"""Cycles of bar.sync among the warps of a program (measured)."""

SHUFFLE_LATENCY: Final = 35.0
"""Cycles of a shuffle and of the operation that needs it (23 alone, Luo et al.)."""

SHARED_LATENCY: Final = 150.0
"""Cycles of a trip through shared memory: a store, and the load that needs it."""

TENSOR_LATENCY: Final = 100.0
"""Cycles until a tensor instruction's result may be used, beyond its issue."""

DEPENDENT_ISSUE: Final = 3.2
"""Cycles between two instructions of one warp, for want of independent ones (measured)."""

SPILL_LATENCY: Final = 16.0
"""Cycles that a spilled word adds to a trip (measured)."""

MMA_SYNC_SHARE: Final = {9: 0.65, 10: 0.5}
"""Share of the tensor rate that mma.sync reaches, by major capability; 1 elsewhere.

62-65% on H100 (Luo et al.); on sm_100, whose rate tcgen05 alone reaches, assumed.
"""

ISSUE_SHARE: Final = 0.8
"""PTX instructions over the machine's own: addresses and predicates cost more (measured)."""

SHARED_SHARE: Final = 0.86
"""Share of shared memory's peak that tensor operands reach (measured)."""

_NOT_ISSUED: Final = frozenset({OpClass.MOVE, OpClass.CONSTANT})
"""ptxas renames registers, and reads parameters as operands: no slots of their own."""

_DTYPES: Final = {
    "f16": "fp16",
    "bf16": "bf16",
    "tf32": "tf32",
    "s8": "int8",
    "u8": "int8",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "f64": "fp64",
    "e2m1": "fp4",
}


@dataclass(frozen=True, slots=True)
class Cycles:
    """One program's demands, in cycles of one SM unless it says otherwise.

    Attributes:
        tensor, issue, shared, l1, special: of the SM's units.
        l2_bytes: bytes between the SM and L2.
        latency: of the longest chain, were the program alone and all units free.
        spill_bytes: through local memory.
        flops: of its tensor instructions.
        instructions: warp instructions.
        barriers: executions of a barrier, a warp.
        trips: executions of its hottest segment.
    """

    tensor: float
    issue: float
    shared: float
    l1: float
    special: float
    l2_bytes: float
    latency: float
    spill_bytes: float
    flops: float
    instructions: float
    barriers: float
    trips: float


def program_cycles(profile: Profile, runs: Sequence[Run], work: Work, target: Target) -> Cycles:
    """Demands of one program of a launch.

    Args:
        profile: the compiled config.
        runs: executions of its segments, as `executions` gives.
        work: of the launch.
        target: the machine.
    """
    sums = _Sums(profile, target, _strides(work))
    for segment, run in zip(profile.segments, runs, strict=True):
        sums.add(segment, run)
    return sums.total(max(run.times for run in runs))


class _Sums:
    """Adds segments up."""

    def __init__(self, profile: Profile, target: Target, strides: Mapping[int, int]) -> None:
        self.profile, self.target, self.strides = profile, target, strides
        self.threads = profile.num_warps * target.warp_size
        self.spilled = profile.static["spill_words"]
        self.tensor = self.shared = self.wavefronts = self.l2_bytes = self.latency = 0.0
        self.flops = self.instructions = self.special = self.barriers = 0.0

    def add(self, segment: Segment, run: Run) -> None:
        """Counts one segment, as often as it runs."""
        times = run.times
        issued = sum(n for kind, n in segment.classes.items() if kind not in _NOT_ISSUED)
        self.instructions += issued * times
        self.special += segment.classes.get(OpClass.SPECIAL, 0) * times
        self.barriers += segment.classes.get(OpClass.BARRIER, 0) * times
        tensor = self._tensor(segment)
        self.tensor += tensor * times
        self.flops += sum(segment.flops.values()) * times
        self.shared += segment.operand_bytes * times / SHARED_SHARE
        self.l2_bytes += segment.tma_bytes * times
        self.shared += segment.tma_bytes * times
        for traffic, count in segment.traffic.items():
            self._move(traffic, count * times)
        self.latency += self._chain(segment, issued, tensor, run.stages) * times

    def _tensor(self, segment: Segment) -> float:
        target = self.target
        cycles = 0.0
        for (kind, operand), flops in segment.flops.items():
            rate = _rate(target, operand)
            if kind in ("mma.sync", "wmma"):
                rate *= MMA_SYNC_SHARE.get(target.capability // 10, 1.0)
            cycles += flops / (rate / target.sms / target.clock_hz)
        return cycles

    def _move(self, traffic: Traffic, times: float) -> None:
        size = traffic.bytes * self.threads
        if traffic.space == "shared":
            self.shared += max(traffic.bytes, 4) * self.threads * times
            return
        if traffic.space != "global":
            return
        lanes = self.target.warp_size
        stride = self.strides.get(traffic.line, 1)
        # A warp's bytes come in 32-byte sectors, and leave L1 128 bytes at a time.
        sectors = max(1.0, traffic.bytes * lanes / 32)
        if stride > 1:
            sectors = float(lanes) * max(1.0, traffic.bytes / 32)
        self.wavefronts += max(1.0, sectors / 4) * self.profile.num_warps * times
        self.l2_bytes += max(size, sectors * 32 * self.profile.num_warps) * times
        if traffic.copies:
            self.shared += size * times

    def _chain(self, segment: Segment, issued: float, tensor: float, stages: int) -> float:
        """Cycles of one run of a segment by a program that has the SM to itself."""
        classes = segment.classes
        chain = issued * DEPENDENT_ISSUE + self.spilled * SPILL_LATENCY
        chain += classes.get(OpClass.BARRIER, 0) * BARRIER_LATENCY
        chain += classes.get(OpClass.SHUFFLE, 0) * SHUFFLE_LATENCY
        chain += SHARED_LATENCY if classes.get(OpClass.SHARED, 0) else 0.0
        chain += tensor + (TENSOR_LATENCY if classes.get(OpClass.TENSOR, 0) else 0.0)
        loads = any(
            t.space == "global" and not t.copies and t.direction != "store" for t in segment.traffic
        )
        if loads:
            chain += LOAD_LATENCY
        copies = classes.get(OpClass.ASYNC_COPY, 0) or segment.tma_bytes
        if copies and segment.depth:
            # All stages but one are on their way while one is worked on.
            return max(chain, (COPY_LATENCY + chain) / max(1, stages - 1))
        return chain

    def total(self, trips: float) -> Cycles:
        """The sums as cycles."""
        target, warps = self.target, self.profile.num_warps
        spill_bytes = self.spilled * 4 * self.threads * 3 * trips
        spills = self.spilled * 2 * trips
        return Cycles(
            tensor=self.tensor,
            issue=(self.instructions / ISSUE_SHARE + spills)
            * warps
            / target.issue_slots_per_clock_per_sm,
            shared=self.shared / target.shared_bytes_per_clock_per_sm,
            l1=self.wavefronts + spill_bytes / 64,
            special=self.special * self.threads / target.special_functions_per_clock_per_sm,
            l2_bytes=self.l2_bytes + 0.3 * spill_bytes,
            latency=self.latency + LOAD_LATENCY,
            spill_bytes=spill_bytes,
            flops=self.flops,
            instructions=self.instructions * warps,
            barriers=self.barriers,
            trips=trips,
        )


def _rate(target: Target, operand: str) -> float:
    """Tensor FLOP/s for an operand type; a type without a rate of its own runs as fp16."""
    rates = target.tensor_flops_per_s
    return rates.get(_DTYPES.get(operand, "fp16"), rates["fp16"])


def _strides(work: Work) -> dict[int, int]:
    """Elements between the nearest neighbours of a tile, by source line; 1 if contiguous.

    Triton lays threads along the axis that is contiguous, whichever it is.
    """
    found: dict[int, int] = {}
    for item in work.accesses:
        strides = item.strides
        if item.line and strides and None not in strides and 1 not in strides:
            nearest = min((abs(stride) for stride in strides if stride), default=1)
            found[item.line] = max(found.get(item.line, 0), nearest)
    return found
