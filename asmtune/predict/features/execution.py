"""Runs of each segment of the assembly: PTX loops matched to the IR's loops.

The IR gives the trips of its loops. The compiler keeps most loops, and unrolls, peels or drops
some. A loop of the PTX belongs to the loop of the IR whose source lines it shares, in the same
nesting. If it multiplies matrices, its executions follow from the FLOPs, which also reveals
unrolled and peeled loops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.ir.ttir.work import DotWork, LoopWork, MemoryAccess, Work
from asmtune.predict.features.profile import Profile, Segment


@dataclass(frozen=True, slots=True)
class SegmentRun:
    """Runs of a segment by one program, on average, and by the program with most trips."""

    times: float
    longest: float


def executions(profile: Profile, work: Work, lanes: int = 32) -> tuple[SegmentRun, ...]:
    """Return how often one program, of warps of `lanes` threads, runs each segment of a profile."""
    matched = match_loops(profile.segments, work)
    times = _times(profile, work, matched, lanes)
    longest = [n * _stretch(loop, work) for n, loop in zip(times, matched, strict=True)]
    return tuple(map(SegmentRun, times, longest))


def _stretch(loop: LoopWork | None, work: Work) -> float:
    """Return the trips of the longest program over the mean, through the loops around one.

    A loop entered more than once may differ from entry to entry in any one program.
    """
    ratio = 1.0
    while loop is not None:
        once = loop.entries <= 1 and 0 < loop.trips < loop.most
        ratio *= loop.most / loop.trips if once else 1.0
        loop = None if loop.parent is None else work.loops[loop.parent]
    return ratio


def _times(
    profile: Profile, work: Work, matched: Sequence[LoopWork | None], lanes: int
) -> list[float]:
    segments = profile.segments
    runs = [1.0] * len(segments)
    for position, segment in enumerate(segments):
        if segment.parent is None:
            continue
        loop = matched[position]
        if loop is None:
            # A loop that only waits, or that the IR does not have, such as the
            # retries of a compare-and-swap, runs about once an entry.
            runs[position] = runs[segment.parent]
            continue
        main = _main_part(segments, matched, position)
        unroll = loop.unroll_factor or 1
        if position == main:
            by_flops = _by_flops(profile, position, work, loop, lanes)
            plain = loop.iterations if unroll == 1 else loop.entries * (loop.trips // unroll)
            runs[position] = plain if by_flops is None else by_flops
        elif unroll == 1 and segments[main].flops and not segment.flops:
            # Another partition of the warps: it copies what the main one multiplies.
            runs[position] = loop.iterations
        else:
            runs[position] = loop.entries * (loop.trips % unroll)
    return runs


def _main_part(
    segments: Sequence[Segment], matched: Sequence[LoopWork | None], position: int
) -> int:
    """Return the loop that does most, among those that one loop of the IR became."""
    parts = [
        i
        for i, loop in enumerate(matched)
        if loop is matched[position] and segments[i].parent == segments[position].parent
    ]
    return max(
        parts,
        key=lambda i: (sum(segments[i].flops.values()), sum(segments[i].classes.values()), -i),
    )


def _by_flops(
    profile: Profile, position: int, work: Work, loop: LoopWork, lanes: int
) -> float | None:
    """Return the executions at which the loop and the trips peeled off it do the IR's FLOPs.

    If warps outnumber the rows of a tile, several compute the same product: a trip then has more
    FLOPs than the IR's, although it appears once in the text.
    """
    segments, unroll = profile.segments, loop.unroll_factor or 1
    whole = 1.0 - loop.trips % unroll / loop.trips if unroll > 1 and loop.trips else 1.0
    wanted = sum(dot.flops for dot in work.dots if dot.loop == loop.id) * whole
    per_run = sum(segments[position].flops.values())
    if not wanted or not per_run:
        return None
    parent = segments[position].parent or 0
    around = sum(dot.flops for dot in work.dots if dot.loop == loop.parent)
    # What is outside all loops runs once, though the IR's loop is inside another: both became one.
    entries = max(loop.entries, 1.0) if parent else 1.0
    peeled = max(0.0, sum(segments[parent].flops.values()) * entries - around)
    copies = per_run * loop.iterations * whole / wanted
    if abs(copies - round(copies)) > _INEXACT:
        wanted *= copies / unroll
    else:
        wanted *= copies / min(copies, _copies_loaded(profile, position, work, loop, lanes))
    left = wanted - min(peeled, wanted)
    return left / per_run


def _copies_loaded(
    profile: Profile, position: int, work: Work, loop: LoopWork, lanes: int
) -> float:
    """Return the most trips that may be side by side in a body: no more than any line loads.

    Bytes that several threads load in common count for each, so that this is only a bound.
    """
    threads = profile.num_warps * lanes
    moved: dict[int, float] = {}
    for traffic, count in profile.segments[position].traffic.items():
        if traffic.space == "global" and traffic.direction == "load":
            moved[traffic.line] = moved.get(traffic.line, 0.0) + traffic.bytes * count * threads
    wanted: dict[int, float] = {}
    for item in work.accesses:
        if item.loop == loop.id and item.kind == "read" and item.line in moved:
            wanted[item.line] = wanted.get(item.line, 0.0) + item.bytes
    bounds = [moved[line] * loop.iterations / size for line, size in wanted.items() if size]
    return max(1.0, float(round(min(bounds)))) if bounds else math.inf


_INEXACT: Final = 0.1
"""Distance from a whole number at which copies of a loop's body are not unrolling."""


def match_loops(segments: Sequence[Segment], work: Work) -> list[LoopWork | None]:
    """Return for each segment the loop of the IR that it comes from."""
    lines = _lines_of(work)
    matched: list[LoopWork | None] = [None] * len(segments)
    for position, segment in enumerate(segments):
        if segment.parent is None or not segment.is_work:
            continue
        around = matched[segment.parent]
        children = [child for child in segments if child.parent == position and child.is_work]
        alike = [
            loop
            for loop in work.loops
            if _is_within(loop, around, work) and _share(segment, lines[loop.id])
        ]
        matched[position] = max(
            alike,
            key=lambda loop: _likeness(segment, children, lines[loop.id], loop, matched),
            default=None,
        )
    _match_by_order(segments, work, matched)
    return matched


def _likeness(
    segment: Segment,
    children: Sequence[Segment],
    own: frozenset[int],
    loop: LoopWork,
    matched: Sequence[LoopWork | None],
) -> tuple[float, bool, bool, float]:
    """Return the share of the loop's own lines that the segment has, then tie-breakers.

    New loops come first, then loops that are not peeled, then those that run most. A segment
    holds its own blocks, without inner loops. If it has the lines of two nested loops, the
    compiler has fused them; if one of its children has the inner loop's lines as well, it has
    peeled trips off the inner loop.
    """
    shared = _share(segment, own)
    peeled = any(_share(child, own) >= shared for child in children)
    return shared, loop not in matched, not peeled, loop.iterations


def _share(segment: Segment, own: frozenset[int]) -> float:
    return len(own & segment.lines) / len(own) if own else 0.0


def _lines_of(work: Work) -> list[frozenset[int]]:
    """Return the source lines of each loop's own accesses, products and header."""
    by_loop: list[set[int]] = [set() for _ in work.loops]
    parts: tuple[MemoryAccess | DotWork, ...] = (*work.accesses, *work.dots)
    for part in parts:
        if part.loop is not None and part.line:
            by_loop[part.loop].add(part.line)
    for loop in work.loops:
        if not by_loop[loop.id] and loop.line:
            by_loop[loop.id].add(loop.line)
    return [frozenset(lines) for lines in by_loop]


def _is_within(loop: LoopWork, around: LoopWork | None, work: Work) -> bool:
    """Return whether a loop is inside another, at any depth; None means the kernel."""
    parent = loop.parent
    while parent is not None:
        if around is not None and parent == around.id:
            return True
        parent = work.loops[parent].parent
    return around is None


def _match_by_order(
    segments: Sequence[Segment], work: Work, matched: list[LoopWork | None]
) -> None:
    """Pair loops of equal number under one parent in order, where lines tell nothing."""
    for parent in range(len(segments)):
        children = [i for i, s in enumerate(segments) if s.parent == parent and s.is_work]
        open_children = [i for i in children if matched[i] is None]
        around = matched[parent]
        siblings = [
            loop
            for loop in work.loops
            if loop.parent == (None if around is None else around.id) and loop not in matched
        ]
        if open_children and len(open_children) == len(siblings):
            for position, loop in zip(open_children, siblings, strict=True):
                matched[position] = loop
