"""Describe a kernel's loops: trips, what was assumed and corrected, and state across steps."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.ir.ttir.costs import BARRIERS, PRODUCTS
from asmtune.ir.ttir.evaluate import TOO_MANY, ExecutionCounts, ProgramArguments
from asmtune.ir.ttir.memory import MemoryOperation
from asmtune.ir.ttir.plan import EvaluationPlan
from asmtune.ir.ttir.scalars import Unknown
from asmtune.ir.ttir.tree import Node, is_inside
from asmtune.ir.ttir.work import Assumption, CarriedState, LoopWork, MemoryAccess

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


PROCESSORS: Final = 132
"""Multiprocessors assumed where the caller names none: an H100's or H200's."""
_FEW: Final = 2


@dataclass(frozen=True)
class LoopContext:
    """A kernel, its launch and its counts, for judging what a loop carries."""

    plan: EvaluationPlan
    launch: ProgramArguments
    operations: list[MemoryOperation]
    counts: ExecutionCounts
    processors: int

    @property
    def is_small(self) -> bool:
        """Return whether the grid has at most `_FEW` programs for each multiprocessor."""
        return math.prod(self.launch.grid) <= _FEW * self.processors

    def within(self, loop: Node) -> list[MemoryOperation]:
        """Return memory operations in a loop, inner loops included."""
        return [operation for operation in self.operations if is_inside(operation.node.body, loop)]


def carried_state(context: LoopContext) -> CarriedState | None:
    """Return the state that goes from step to step of a loop on a small grid, or None.

    A sum that the next tile starts anew does not count, nor does one stored after its last step:
    only where steps store what earlier ones left, or multiply it, does each step wait for the last.
    """
    if not context.is_small:
        return None
    tests: tuple[tuple[Callable[[LoopContext, Node], set[int] | None], str], ...] = (
        (_stored_state, "carries state that each step stores"),
        (_multiplied_state, "multiplies the state that it carries"),
        (_state_in_memory, "hands state on through memory"),
    )  # fmt: skip
    for node in context.plan.tree.loops:
        for test, does in tests:
            values = test(context, node)
            if values is not None:
                kinds = tuple(context.plan.tree.type_text(value) for value in sorted(values))
                reason = f"a sequential loop {does}, on a small grid{_line(context, node)}"
                return CarriedState(reason, kinds)
    return None


def _line(context: LoopContext, node: Node) -> str:
    position = context.plan.tree.line_of(node)
    return f" (line {position[1]})" if position else ""


def _stored_state(context: LoopContext, node: Node) -> set[int] | None:
    """Return the carried values that flow into what each step stores.

    A tile's sum that is stored under a condition and then started anew is left out.
    """
    if context.counts.most[node.loop] < 2:
        return None
    states = {value for value in carried_tensors(context.plan, node) if _recurs(context, value)}
    stores = [one for one in context.within(node) if one.kind != "read"]
    seen: set[int] = set()
    for operation in stores if states else ():
        reached = states & context.plan.flow.computed_from(operation.node.operands[1:])
        conditional = _is_conditional(operation.node, node)
        seen |= {at for at in reached if not (conditional and _starts_anew(context, node, at))}
    return seen or None


def _recurs(context: LoopContext, value: int) -> bool:
    """Return whether a carried value's next one is computed from it, and from data if whole."""
    flow = context.plan.flow
    following = flow.origins(value)[1:]
    is_data = context.plan.tree.type_of(value).is_float or _comes_from(
        context, following, "tt.load"
    )
    return is_data and value in flow.computed_from(following)


def _is_conditional(inner: Node, loop: Node) -> bool:
    for owner in inner.body.owners():
        if owner is loop:
            return False
        if owner.name == "scf.if":
            return True
    return False


def _starts_anew(context: LoopContext, loop: Node, value: int) -> bool:
    """Return whether a condition of the whole program sets a carried value anew.

    A mask, which differs by element, does not: other elements go on.
    """
    flow, tree = context.plan.flow, context.plan.tree
    for at in flow.computed_from(flow.origins(value)[1:]):
        owner, _ = tree.sources[at]
        if not isinstance(owner, Node) or not is_inside(owner.body, loop):
            continue
        if owner.name == "scf.if":
            sides = flow.origins(at)
        elif owner.name == "arith.select" and _is_uniform(context, owner.operands[0]):
            sides = list(owner.operands[1:])
        else:
            continue
        if len({value in flow.computed_from([side]) for side in sides}) == 2:
            return True
    return False


def _is_uniform(context: LoopContext, condition: int) -> bool:
    owner, _ = context.plan.tree.sources[condition]
    is_splat = isinstance(owner, Node) and owner.name == "tt.splat"
    return is_splat or not context.plan.tree.type_of(condition).is_tensor


def _multiplied_state(context: LoopContext, node: Node) -> set[int] | None:
    """Return the carried values that are factors of the product that makes the next ones."""
    if context.counts.most[node.loop] < 2:
        return None
    flow = context.plan.flow
    dots = (
        other
        for other in context.plan.tree.nodes()
        if other.name in ("tt.dot", "ttng.warp_group_dot")
    )
    for other in (dot for dot in dots if is_inside(dot.body, node)):
        # The third operand is what the product is added to.
        reached = flow.computed_from(other.operands[:2])
        if reached & set(other.results):
            return reached & set(carried_tensors(context.plan, node))
    return None


_SUMS: Final = frozenset(
    {
        "arith.addf", "arith.addi", "arith.maximumf", "arith.maxnumf", "arith.minimumf",
        "arith.minnumf", "arith.maxsi", "arith.maxui", "arith.minsi", "arith.minui",
        "arith.select", "arith.extf", "arith.truncf", "tt.fp_to_fp",
    }
)  # fmt: skip


def _state_in_memory(context: LoopContext, node: Node) -> set[int] | None:
    """Detect state that goes through memory, with a barrier or a wait in the loop.

    Sums in memory do not count: any order of the steps gives them.
    """
    waits = any(
        (other.name in BARRIERS or (other.name == "scf.while" and other is not node))
        and is_inside(other.body, node)
        for other in context.plan.tree.nodes()
    )
    inside = context.within(node) if waits else []
    for written in (one for one in inside if one.kind != "read"):
        read = {
            result
            for one in inside
            if one.kind == "read" and set(one.roots) & set(written.roots)
            for result in one.node.results
        }
        if read & _factors(context, written.node.operands[1:]):
            return set()
    return None


def _factors(context: LoopContext, values: Iterable[int]) -> set[int]:
    """Return what some values are computed from by more than sums."""
    plan = context.plan
    owners = (plan.tree.sources[value][0] for value in plan.flow.computed_from(values))
    others = {
        owner
        for owner in owners
        if isinstance(owner, Node) and owner.name not in _SUMS and not owner.regions
    }
    return plan.flow.computed_from(value for owner in others for value in owner.operands)


def carried_tensors(plan: EvaluationPlan, node: Node) -> list[int]:
    """Return the tensors of numbers that go from trip to trip of a loop."""
    body = node.regions[0][0]
    arguments = body.arguments[1:] if node.name == "scf.for" else body.arguments
    kinds = {argument: plan.tree.type_of(argument) for argument in arguments}
    return [at for at, kind in kinds.items() if kind.is_tensor and not kind.addresses]


def _comes_from(context: LoopContext, values: Iterable[int], name: str) -> bool:
    sources = context.plan.tree.sources
    reached = context.plan.flow.computed_from(values)
    owners = (sources[value][0] for value in reached)
    return any(isinstance(owner, Node) and owner.name == name for owner in owners)
