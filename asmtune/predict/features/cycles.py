"""Cycles of one program on one SM: each unit's throughput, the latency chain, and L1's hits.

Cycles are the assembly's work, weighted by how often it runs, over the work that the target's SM
can do a cycle. Constants of the hardware that no datasheet gives come from
microbenchmarks (Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU
Architecture", 2024, arXiv 2402.13499, for sm_80 to sm_90) or were measured on an
H200 over the recorded timings; each says which.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.core.hardware.model import Target, tensor_rate
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.strides import Steps
from asmtune.ir.ttir.work import MemoryAccess, Work
from asmtune.predict.features.execution import SegmentRun
from asmtune.predict.features.profile import Profile, Segment, Traffic
from asmtune.predict.features.requests import (
    SectorsPerRequest,
    beside_each_other,
    touched,
    weighted,
)


@dataclass(frozen=True, slots=True)
class Locality:
    """Memory accesses of a program by source line.

    Attributes:
        tiles: by line, direction and elements.
        shares: bytes that the IR asks for over those that the assembly's threads move: if a
            tile has fewer elements than threads, several threads hold the same one, and a
            pipeline's first copies are both before and in its loop.
        hits: share of the bytes loaded that an SM's L1 still holds from an earlier read.
        unseen_bytes: bytes stored by bulk copies, whose instructions have no size.
    """

    tiles: Mapping[tuple[int, str, int], Sequence[AccessedTile]]
    shares: Mapping[int, float]
    hits: Mapping[int, float]
    unseen_bytes: float

    @classmethod
    def of(
        cls, profile: Profile, runs: Sequence[SegmentRun], work: Work, target: Target
    ) -> Locality:
        """Compute the locality of one program of a launch."""
        threads = profile.num_warps * target.warp_size
        moved_by_line: dict[int, float] = {}
        for segment, run in zip(profile.segments, runs, strict=True):
            for traffic, count in segment.traffic.items():
                if traffic.space == "global":
                    moved = traffic.bytes * threads * count * run.times
                    moved_by_line[traffic.line] = moved_by_line.get(traffic.line, 0.0) + moved
        wanted_by_line: dict[int, float] = {}
        for item in work.accesses:
            wanted_by_line[item.line] = wanted_by_line.get(item.line, 0.0) + item.bytes
        shares = {
            line: min(1.0, wanted_by_line[line] / moved)
            for line, moved in moved_by_line.items()
            if line in wanted_by_line and moved
        }
        unseen = sum(
            a.bytes for a in work.accesses if a.kind == "write" and a.line not in moved_by_line
        )
        return cls(_tiles(work), shares, _hits(profile, work, target), unseen)

    def touched(self, profile: Profile, traffic: Traffic, target: Target) -> SectorsPerRequest:
        """Return what a request touches: the mean over the accesses of the instruction's line."""
        found, elements, met = [], [], Counter[int]()
        for request in profile.requests.get((traffic.line, traffic.direction), ()):
            size = math.prod(request.shape)
            alike = self.tiles.get((traffic.line, traffic.direction, size), ())
            # Tiles of one line and size follow each other in TTIR as in TTGIR.
            tile = alike[min(met[size], len(alike) - 1)] if alike else None
            met[size] += 1
            if tile is not None and len(tile.strides) == len(request.shape):
                one = touched(request, tile.strides, traffic.bytes, l1_sectors(target)[0])
                found.append(one.within(tile.argument_bytes, tile.share))
                elements.append(size)
        if found:
            return weighted(found, elements)
        return beside_each_other(traffic.bytes, target.warp_size, l1_sectors(target)[0])


@dataclass(frozen=True, slots=True)
class AccessedTile:
    """A tile that a line of the source loads, stores or updates.

    Attributes:
        strides: elements between neighbours along each axis, None where it is unknown.
        argument_bytes: of the argument that it lies in.
        share: of its elements that bounds leave.
    """

    strides: Steps
    argument_bytes: float
    share: float


DIRECTIONS: Final = {"read": "load", "write": "store", "atomic": "atomic"}
"""Directions of traffic by the kind of an access."""


def accessed_tiles(work: Work) -> Iterator[AccessedTile]:
    """Yield the tile of each access of a launch.

    An unknown stride along the last axis is taken for 1, unless the kernel loads the addresses:
    neighbours of quotients and clamped coordinates mostly lie beside each other.
    """
    sizes = {use.index: use.size_bytes for use in work.arguments}
    for item in work.accesses:
        own = item.strides
        if own and own[-1] is None and 1 not in own and not item.by_index:
            own = (*own[:-1], 1)
        size = sum(sizes.get(place) or math.inf for place in item.arguments) or math.inf
        yield AccessedTile(own, size, item.share)


def _tiles(work: Work) -> dict[tuple[int, str, int], list[AccessedTile]]:
    tiles: dict[tuple[int, str, int], list[AccessedTile]] = {}
    for item, tile in zip(work.accesses, accessed_tiles(work), strict=True):
        place = (item.line, DIRECTIONS[item.kind], item.elements)
        tiles.setdefault(place, []).append(tile)
    return tiles


def _hits(profile: Profile, work: Work, target: Target) -> dict[int, float]:
    """Return the share of each line's loads that L1 serves.

    Hits are repeated reads of an argument by the programs on an SM, if everything they read fits
    into the L1 beside their shared memory. Reads of one operation count as different bytes;
    another operation on the same argument reads the same bytes again.
    """
    fits = max(1.0, profile.static["programs_per_sm"])
    resident = min(fits, math.ceil(work.programs / target.sms))
    capacity = target.l1_room(resident * profile.static["shared_bytes"])
    reads: dict[int, list[MemoryAccess]] = {}
    for item in work.accesses:
        if item.kind == "read" and len(item.arguments) == 1 and not item.foreign:
            reads.setdefault(item.arguments[0], []).append(item)
    sizes = {use.index: use.size_bytes for use in work.arguments}
    unique: dict[int, float] = {}
    for argument, items in reads.items():
        different = resident * max(item.bytes for item in items)
        size = sizes.get(argument)
        unique[argument] = different if size is None else min(different, size)
    footprint = sum(unique.values())
    fit = min(1.0, max(0.0, capacity) / footprint) ** 2 if footprint else 0.0
    hits = {}
    for argument, items in reads.items():
        demand = resident * sum(item.bytes for item in items)
        if demand:
            again = max(0.0, 1.0 - unique[argument] / demand)
            hits.update({item.line: again * fit for item in items})
    return hits


DRAIN_LATENCY: Final = 400.0
"""Cycles from a program's last instruction until its stores are through (measured)."""

DEPENDENT_ISSUE: Final = 2.7
"""Cycles between two instructions of one warp, for want of independent ones (measured)."""

SPILL_LATENCY: Final = 20.0
"""Cycles that a spilled word adds to a trip (measured)."""

SHARED_SHARE: Final = 0.72
"""Share of shared memory's peak that tensor operands reach (measured)."""

WIDEST_COPY: Final = 16
"""Bytes of a thread's copy to shared memory that passes by L1 (`cp.async.cg`)."""

_NOT_ISSUED: Final = frozenset({OpClass.MOVE, OpClass.CONSTANT})
"""Classes without issue slots: ptxas renames registers and reads parameters as operands."""

_OTHER_PORTS: Final = frozenset(OpClass) - {
    OpClass.TENSOR,
    OpClass.SPECIAL,
    OpClass.FLOAT,
    OpClass.INTEGER,
    OpClass.LOGIC,
    OpClass.CONVERT,
    OpClass.SHUFFLE,
    OpClass.MOVE,
    OpClass.UNKNOWN,
}
"""The same on AMD: a SIMD's vector slots; other units take theirs from other wavefronts beside."""

AMD_DEPENDENT_ISSUE: Final = 4.0
"""Cycles between two vector instructions of one wavefront: 64 lanes on 16 (ISA guides of CDNA)."""


def l1_sectors(target: Target) -> tuple[int, int]:
    """Return the bytes in which memory is read, and how many such pieces L1 gives a cycle.

    NVIDIA's L1 gives 128 bytes in sectors of 32; AMD's half a line of 64, one a cycle in gfx90a
    and two since (ROCm Compute Profiler's peak of its vL1D).
    """
    if target.backend == "cuda":
        return 32, 4
    return 64, 1 if target.arch == "gfx90a" else 2


@dataclass(frozen=True, slots=True)
class Cycles:
    """Demands of one program, in cycles of one SM unless stated otherwise.

    Attributes:
        tensor, issue, shared, l1, special: of the SM's units.
        l2_bytes: bytes between the SM and L2.
        latency: of the longest chain, were the program alone and all units free.
        spill_bytes: through local memory.
        flops: of its tensor instructions.
        instructions: warp instructions.
        barriers: executions of a barrier, a warp.
        trips: executions of its hottest segment.
        longest: chain of the program with most trips.
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
    longest: float


def program_cycles(
    profile: Profile, runs: Sequence[SegmentRun], work: Work, target: Target
) -> Cycles:
    """Return the demands of one program of a launch; `runs` are what `executions` returns."""
    sums = _Sums(profile, target, Locality.of(profile, runs, work, target))
    for segment, run in zip(profile.segments, runs, strict=True):
        sums.add(segment, run)
    return sums.total(max(run.times for run in runs))


class _Sums:
    def __init__(self, profile: Profile, target: Target, lines: Locality) -> None:
        self.profile, self.target, self.lines = profile, target, lines
        self.threads = profile.num_warps * target.warp_size
        self.spilled = profile.static["spill_words"]
        self.tensor = self.wavefronts = self.latency = self.longest = 0.0
        self.flops = self.instructions = self.special = self.barriers = 0.0
        self.shared = self.l2_bytes = lines.unseen_bytes
        is_amd = target.backend == "hip"
        self.unissued = _OTHER_PORTS if is_amd else _NOT_ISSUED
        self.sectors = l1_sectors(target)
        self.step = AMD_DEPENDENT_ISSUE if is_amd else DEPENDENT_ISSUE

    def add(self, segment: Segment, run: SegmentRun) -> None:
        """Add one segment, as often as it runs."""
        times = run.times
        issued = sum(n for kind, n in segment.classes.items() if kind not in self.unissued)
        self.instructions += issued * times
        self.special += segment.classes.get(OpClass.SPECIAL, 0) * times
        self.barriers += segment.classes.get(OpClass.BARRIER, 0) * times
        flops = segment.flops.items()
        self.tensor += sum(n / tensor_rate(self.target, *kinds) for kinds, n in flops) * times
        self.flops += sum(segment.flops.values()) * times
        self.shared += segment.operand_bytes * times / SHARED_SHARE
        self.l2_bytes += segment.tma_bytes * times
        self.shared += segment.tma_bytes * times
        for traffic, count in segment.traffic.items():
            self._move(traffic, count * times)
        # With few other warps beside it, issue slots that ptxas cannot fill stay empty.
        stalls = issued * self.step + self.spilled * SPILL_LATENCY
        self.latency += (segment.chain + stalls) * times
        self.longest += (segment.chain + stalls) * run.longest

    def _move(self, traffic: Traffic, times: float) -> None:
        size = traffic.bytes * self.threads
        ways = self.profile.bank_ways
        if traffic.space == "shared":
            met = ways.get((traffic.line, traffic.direction), 1.0)
            self.shared += max(traffic.bytes, 4) * self.threads * times * met
            return
        if traffic.space != "global":
            return
        request = self.lines.touched(self.profile, traffic, self.target)
        share = min(request.share, self.lines.shares.get(traffic.line, 1.0) / request.lanes)
        # Threads without an element of their own load nevertheless, but do not store.
        kept = share if traffic.direction == "store" else request.share
        warps = self.profile.num_warps * times
        sector, at_once = self.sectors
        is_amd = self.target.backend == "hip"
        bypass = is_amd or (traffic.copies and traffic.bytes == WIDEST_COPY)
        self.wavefronts += request.cycles(at_once, copies=bypass) * warps * kept
        # What a load left in L1 serves the warp's next ones; stores all go on to L2.
        cached = traffic.direction == "load"
        fresh = request.fresh if cached else 1.0
        hits = 0.0 if traffic.copies or not cached else self.lines.hits.get(traffic.line, 0.0)
        self.l2_bytes += request.sectors * sector * warps * share * (1.0 - hits) * fresh
        if traffic.copies:
            self.shared += size * times * share * ways.get((traffic.line, "copy"), 1.0)

    def total(self, trips: float) -> Cycles:
        """Return the sums as cycles."""
        target, warps = self.target, self.profile.num_warps
        spill_bytes = self.spilled * 4 * self.threads * 3 * trips
        spills = self.spilled * 2 * trips
        return Cycles(
            tensor=self.tensor,
            issue=(self.instructions + spills) * warps / target.issue_slots_per_clock_per_sm,
            shared=self.shared / target.shared_bytes_per_clock_per_sm,
            l1=self.wavefronts + spill_bytes / 64,
            special=self.special * self.threads / target.special_functions_per_clock_per_sm,
            l2_bytes=self.l2_bytes + 0.3 * spill_bytes,
            latency=self.latency + DRAIN_LATENCY,
            spill_bytes=spill_bytes,
            flops=self.flops,
            instructions=self.instructions * warps,
            barriers=self.barriers,
            trips=trips,
            longest=self.longest + DRAIN_LATENCY,
        )
