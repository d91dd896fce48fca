"""Trips of loops that cannot be evaluated, from what the launch must move.

A bound loaded from memory, such as a sequence's length, is not known. But a kernel
writes each of its outputs about once; and one that only reads in such a loop reads
its largest input there about once. So many trips are assumed: the ratio between
configs is then right, where a constant would favour small tiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from asmtune.ir.ttir.execution_counts import ExecutionCounts
from asmtune.ir.ttir.plan import EvaluationPlan
from asmtune.ir.ttir.tree import is_inside
from asmtune.ir.ttir.work import MemoryAccess

_MOST: Final = 1e4
"""Bound on the correction, either way: beyond, the tensor's size has nothing to do with it."""


def corrections(
    plan: EvaluationPlan,
    tally: ExecutionCounts,
    accesses: Sequence[MemoryAccess],
    sizes: Mapping[int, int | None],
    programs: int,
) -> dict[int, float]:
    """By how much to multiply the trips of each outermost loop with an unknown bound.

    Args:
        plan: the kernel.
        tally: counts with default trips.
        accesses: with the runs that follow from them.
        sizes: bytes behind each pointer argument, by position.
        programs: of the launch.
    """
    unknown = {node.loop for node, _ in tally.unknown.values() if node.loop >= 0}
    found: dict[int, float] = {}
    for loop in sorted(unknown):
        if unknown & set(_around(plan, loop)) or not tally.trips[loop]:
            continue
        inside = [
            item
            for item in accesses
            if item.loop is not None
            and loop in (item.loop, *_around(plan, item.loop))
            and len(item.arguments) == 1
            and sizes.get(item.arguments[0])
            and item.bytes
        ]
        written = [item for item in inside if item.kind == "write"]
        read = [item for item in inside if item.kind == "read"]
        mean = tally.trips[loop] / tally.entries[loop]
        if written:
            most = max(written, key=lambda item: item.bytes)
            ratio = (sizes[most.arguments[0]] or 0) / (most.bytes * programs)
        elif read:
            most = max(read, key=lambda item: sizes[item.arguments[0]] or 0)
            ratio = (sizes[most.arguments[0]] or 0) / (most.bytes * programs)
            ratio = max(ratio, 1.0 / mean)  # An entry that reads takes a trip.
        else:
            continue
        found[loop] = min(max(ratio, 1.0 / _MOST), _MOST)
    return found


def correct(
    plan: EvaluationPlan, tally: ExecutionCounts, runs: list[float], factors: Mapping[int, float]
) -> None:
    """Multiplies the runs of what is inside these loops, and the trips of the loops."""
    for loop, factor in factors.items():
        outer = plan.tree.loops[loop]
        tally.trips[loop] *= factor
        # All entries are assumed to be alike.
        tally.least[loop] = tally.most[loop] = math.ceil(tally.trips[loop] / tally.entries[loop])
        for inner in range(len(plan.tree.loops)):
            if inner != loop and loop in _around(plan, inner):
                tally.entries[inner] *= factor
                tally.trips[inner] *= factor
        for body in plan.tree.bodies:
            if is_inside(body, outer):
                runs[body.index] *= factor


def _around(plan: EvaluationPlan, loop: int) -> list[int]:
    """The loops around one, inner ones first."""
    found = []
    parent = plan.tree.enclosing_loop(plan.tree.loops[loop].body)
    while parent is not None:
        found.append(parent)
        parent = plan.tree.enclosing_loop(plan.tree.loops[parent].body)
    return found
