"""Describe a kernel's loops: trips, and what was assumed and corrected."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from asmtune.ir.ttir.costs import PRODUCTS
from asmtune.ir.ttir.evaluate import TOO_MANY, ExecutionCounts, ProgramArguments
from asmtune.ir.ttir.plan import EvaluationPlan
from asmtune.ir.ttir.scalars import Unknown
from asmtune.ir.ttir.tree import is_inside
from asmtune.ir.ttir.work import Assumption, LoopWork, MemoryAccess

_STAGES: Final = re.compile(r"tt\.num_stages = (\d{1,4})").search
_UNROLL: Final = re.compile(r"tt\.loop_unroll_factor = (\d{1,4})").search


def describe_loops(
    plan: EvaluationPlan, counts: ExecutionCounts, evaluated: int
) -> tuple[LoopWork, ...]:
    """Return every loop with its counts over the programs evaluated."""
    products = (node for node in plan.tree.nodes() if node.name in PRODUCTS)
    dots = {loop for node in products for loop in node.body.loops()}
    described: list[LoopWork] = []
    for node in plan.tree.loops:
        loop = node.loop
        parent = plan.tree.enclosing_loop(node.body)
        file, line = plan.tree.line_of(node) or ("", 0)
        entries = counts.entries[loop]
        described.append(
            LoopWork(
                id=loop,
                parent=parent,
                depth=1 if parent is None else described[parent].depth + 1,
                file=file,
                line=line,
                trips=counts.trips[loop] / entries if entries else 0.0,
                least=max(0, counts.least[loop]),
                most=max(0, counts.most[loop]),
                entries=entries / evaluated,
                num_stages=int(stages[1]) if (stages := _STAGES(node.text)) else None,
                unroll_factor=int(unroll[1]) if (unroll := _UNROLL(node.text)) else None,
                has_dot=loop in dots,
            )
        )
    return tuple(described)


def describe_assumptions(
    plan: EvaluationPlan, counts: ExecutionCounts, launch: ProgramArguments
) -> tuple[Assumption, ...]:
    """Return the loops and branches that could not be evaluated."""
    described = []
    unread = {node.loop for node, _ in counts.unknown.values()}
    cut = [(plan.tree.loops[at], Unknown(TOO_MANY)) for at in sorted(counts.cut - unread)]
    for node, reason in (*counts.unknown.values(), *cut):
        file, line = plan.tree.line_of(node) or ("", 0)
        is_loop = node.loop >= 0
        loop = node.loop if is_loop else None
        entries = counts.entries[node.loop] if is_loop else 0.0
        trips = counts.trips[node.loop] / entries if entries else launch.default_trips
        count = "1 trip" if trips == 1 else f"{trips:.3g} trips"
        assumed = count if is_loop else "the side that does more"
        described.append(Assumption(node.name, loop, reason.reason, assumed, file, line))
    return tuple(described)


_MOST: Final = 1e4
"""Largest correction, either way: beyond it the trips do not follow the tensor's size."""


def trip_corrections(
    plan: EvaluationPlan,
    counts: ExecutionCounts,
    accesses: Sequence[MemoryAccess],
    sizes: Mapping[int, int | None],
    programs: int,
) -> dict[int, float]:
    """Return the factor for the trips of each outermost loop with an unknown bound.

    A bound loaded from memory, such as a sequence's length, is unknown. But a kernel writes each of
    its outputs about once, and a kernel that only reads in such a loop reads its largest input
    there about once. The trips that this takes are assumed: the ratio between configs is then
    right, where a constant would favour small tiles.

    `counts` are those with default trips, `accesses` have the runs that follow from them, and
    `sizes` are bytes behind each pointer argument, by position.
    """
    unknown = {node.loop for node, _ in counts.unknown.values() if node.loop >= 0} - plan.waiting
    factors: dict[int, float] = {}
    for loop in sorted(unknown):
        if unknown & set(_loops_around(plan, loop)) or not counts.trips[loop]:
            continue
        inside = [
            item
            for item in accesses
            if item.loop is not None
            and loop in (item.loop, *_loops_around(plan, item.loop))
            and len(item.arguments) == 1
            and sizes.get(item.arguments[0])
            and item.bytes
        ]
        factor = _trip_factor(inside, sizes, programs, counts.trips[loop] / counts.entries[loop])
        if factor is not None:
            factors[loop] = min(max(factor, 1.0 / _MOST), _MOST)
    return factors


def _trip_factor(
    inside: Sequence[MemoryAccess],
    sizes: Mapping[int, int | None],
    programs: int,
    mean_trips: float,
) -> float | None:
    """Return the bytes of a loop's largest output, or else input, over the bytes it moves of it."""

    def ratio(access: MemoryAccess) -> float:
        return (sizes[access.arguments[0]] or 0) / (access.bytes * programs)

    written = [item for item in inside if item.kind == "write"]
    read = [item for item in inside if item.kind == "read"]
    if written:
        return ratio(max(written, key=lambda item: item.bytes))
    if read:
        largest = max(read, key=lambda item: sizes[item.arguments[0]] or 0)
        return max(ratio(largest), 1.0 / mean_trips)  # An entry that reads takes a trip.
    return None


def apply_trip_corrections(
    plan: EvaluationPlan, counts: ExecutionCounts, runs: list[float], factors: Mapping[int, float]
) -> None:
    """Multiply the trips of these loops, and the runs of everything inside them."""
    for loop, factor in factors.items():
        outer = plan.tree.loops[loop]
        counts.trips[loop] *= factor
        # All entries are assumed to be alike.
        mean = math.ceil(counts.trips[loop] / counts.entries[loop])
        counts.least[loop] = counts.most[loop] = mean
        for inner in range(len(plan.tree.loops)):
            if inner != loop and loop in _loops_around(plan, inner):
                counts.entries[inner] *= factor
                counts.trips[inner] *= factor
        for body in plan.tree.bodies:
            if is_inside(body, outer):
                runs[body.index] *= factor


def _loops_around(plan: EvaluationPlan, loop: int) -> list[int]:
    return list(plan.tree.loops[loop].body.loops())
