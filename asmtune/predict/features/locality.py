"""What the IR knows of the memory that each source line touches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from asmtune.core.hardware.model import Target
from asmtune.ir.ttir.work import MemoryAccess, Work
from asmtune.predict.features.execution import SegmentRun
from asmtune.predict.features.profile import Profile


@dataclass(frozen=True, slots=True)
class Locality:
    """Memory by source line.

    Attributes:
        strides: elements between the nearest neighbours of a tile; absent if contiguous.
        shares: of the bytes that the assembly's threads move, those that the IR asks
            for: where a tile has fewer elements than threads, several threads hold the
            same one, and a pipeline's first copies stand both before and in its loop.
        hits: of the bytes loaded, those that an SM's L1 still holds from an earlier read.
        wide: lines whose tiles lie in memory so that 16 bytes at a time can be moved; whether
            along the last axis.
        unseen_bytes: of stores that no instruction with a size makes, by bulk copies.
    """

    strides: Mapping[int, int]
    shares: Mapping[int, float]
    hits: Mapping[int, float]
    wide: Mapping[int, bool]
    unseen_bytes: float

    @classmethod
    def of(
        cls, profile: Profile, runs: Sequence[SegmentRun], work: Work, target: Target
    ) -> Locality:
        """Of a program's launch."""
        threads = profile.num_warps * target.warp_size
        found: dict[int, float] = {}
        for segment, run in zip(profile.segments, runs, strict=True):
            for traffic, count in segment.traffic.items():
                if traffic.space == "global":
                    moved = traffic.bytes * threads * count * run.times
                    found[traffic.line] = found.get(traffic.line, 0.0) + moved
        asked: dict[int, float] = {}
        for item in work.accesses:
            asked[item.line] = asked.get(item.line, 0.0) + item.bytes
        shares = {
            line: min(1.0, asked[line] / moved)
            for line, moved in found.items()
            if line in asked and moved
        }
        unseen = sum(a.bytes for a in work.accesses if a.kind == "write" and a.line not in found)
        return cls(_strides(work), shares, _hits(profile, work, target), _wide(work), unseen)


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


def _wide(work: Work) -> dict[int, bool]:
    """Lines of loads of tiles that are contiguous along an axis and aligned along the others.

    The value says whether the contiguous axis is the last.
    """
    found = {}
    for item in work.accesses:
        strides = [stride for stride in item.strides if stride]
        if item.kind != "read" or None in strides or len(item.strides) < 2:
            continue
        rows = [stride for stride in strides if stride != 1]
        aligned = all(stride * item.element_bytes % 16 == 0 for stride in rows)
        if rows and aligned and 1 in strides:
            found[item.line] = item.strides[-1] == 1
    return found


def _hits(profile: Profile, work: Work, target: Target) -> dict[int, float]:
    """Share of each line's loads that L1 serves.

    What the programs on an SM read of an argument more than once, if all that they read
    fits into the L1 beside their shared memory. Reads of one operation count as different,
    those of another operation on the same argument as the same again.
    """
    fits = max(1.0, profile.static["programs_per_sm"])
    resident = min(fits, math.ceil(work.programs / target.sms))
    capacity = target.shared_bytes_per_sm - resident * profile.static["shared_bytes"]
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
