"""Describe a kernel's loops, list what was assumed about them, and correct assumed trips."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from asmtune.ir.ttir.costs import BARRIERS
from asmtune.ir.ttir.evaluate import (
    TOO_MANY,
    ExecutionCounts,
    ProgramArguments,
    ProgramEvaluator,
)
from asmtune.ir.ttir.memory import KINDS, MemoryOperation
from asmtune.ir.ttir.plan import EvaluationPlan, terminator
from asmtune.ir.ttir.scalars import Unknown
from asmtune.ir.ttir.tree import Node, is_inside
from asmtune.ir.ttir.work import Assumption, LoopWork, MemoryAccess

PROCESSORS: Final = 132
"""Multiprocessors assumed where the caller names none: an H100's or H200's."""
_FEW: Final = 2


@dataclass(frozen=True)
class LoopContext:
    """A kernel, its launch and its counts, for judging whether a loop is persistent."""

    plan: EvaluationPlan
    launch: ProgramArguments
    operations: list[MemoryOperation]
    counts: ExecutionCounts
    processors: int

    @property
    def is_small(self) -> bool:
        """True if the grid has at most `_FEW` programs for each multiprocessor."""
        return math.prod(self.launch.grid) <= _FEW * self.processors

    def within(self, loop: Node) -> list[MemoryOperation]:
        """Return memory operations in a loop, inner loops included."""
        return [operation for operation in self.operations if is_inside(operation.node.body, loop)]


def persistent_reason(context: LoopContext) -> str:
    """Return why a kernel is persistent, or "" if it is not."""
    tree = context.plan.tree
    tests: tuple[Callable[[LoopContext, Node], str], ...] = (
        _walks_tiles, _takes_tiles, _flattened, _recurs, _shares_state, _feeds_back
    )  # fmt: skip
    for node in tree.loops:
        if node.name == "scf.for" and tree.enclosing_loop(node.body) is not None:
            continue
        stores = any(operation.kind != "read" for operation in context.within(node))
        for test in tests if stores else (_feeds_back,):
            reason = test(context, node)
            if reason:
                position = tree.line_of(node)
                return reason + (f" (line {position[1]})" if position else "")
    return ""


def _walks_tiles(context: LoopContext, node: Node) -> str:
    """Detect a `for` from the program id in steps of the grid that stores in its body."""
    if node.name != "scf.for" or not _comes_from(context, node.operands[:1], "tt.get_program_id"):
        return ""
    if _comes_from(context, node.operands[2:3], "tt.get_num_programs"):
        return "a loop walks tiles from the program id in steps of the grid"
    if _exceeds(context, node.operands[0], node.operands[2]):
        return "a loop walks tiles from the program id in steps as wide as the grid"
    return ""


def _exceeds(context: LoopContext, start: int, step: int | tuple[int, int] | None) -> bool:
    """Return whether a loop's step exceeds the distance between any two programs' starts.

    `step` is a value, or the values before and after a step.
    """
    if step is None:
        return False
    runs = [_evaluated_program(context, program) for program in _neighbours(context.launch.grid)]
    starts = [machine.value(start) for machine in runs]
    if isinstance(step, tuple):
        steps = [runs[0].value(value) for value in step]
    else:
        steps = [0, runs[0].value(step)]
    numbers: list[Any] = [*starts, *steps]
    if any(isinstance(value, Unknown) for value in numbers):
        return False
    first, *others, before, after = numbers
    spread = sum(
        abs(other - first) * (size - 1)
        for other, size in zip(others, context.launch.grid, strict=True)
    )
    return bool(spread and after - before > spread)


def _takes_tiles(context: LoopContext, node: Node) -> str:
    """Detect a storing `while` that goes by the grid's size or takes tiles from a counter."""
    if node.name != "scf.while":
        return ""
    arguments = node.regions[0][0].arguments
    has_inner = any(is_inside(other.body, node) for other in context.plan.tree.loops)
    for place, start in enumerate(node.operands):
        if arguments[place] not in context.plan.needed:
            continue
        if _comes_from(context, [start], "tt.atomic_rmw"):
            return "a while loop takes tile after tile from a counter in memory"
        if _comes_from(context, [start], "tt.get_program_id") and (
            (context.is_small and has_inner) or _exceeds(context, start, _while_step(node, place))
        ):
            return "a while loop takes tile after tile, from the program id on"
    return ""


def _while_step(node: Node, place: int) -> tuple[int, int] | None:
    after = node.regions[1][0]
    last = terminator(after)
    if last is None or place >= min(len(last.operands), len(after.arguments)):
        return None
    return after.arguments[place], last.operands[place]


def _flattened(context: LoopContext, node: Node) -> str:
    """Detect one loop over the steps of several tiles: it carries state and stores now and then."""
    if not context.is_small or not _carried_floats(context.plan, node):
        return ""
    bounded = _comes_from(context, node.operands[:3], "tt.get_program_id")
    shared = _comes_from(context, node.operands[:3], "tt.get_num_programs")
    conditional = any(
        operation.kind != "read" and operation.node.body.owner is not None
        and operation.node.body.owner.name == "scf.if"
        for operation in context.within(node)
    )  # fmt: skip
    if node.name == "scf.for" and (bounded or shared) and conditional:
        return "one loop runs through the steps of several tiles"
    return ""


def _recurs(context: LoopContext, node: Node) -> str:
    """Detect state that goes from step to step and into what each step stores."""
    carried = set(_carried_floats(context.plan, node))
    if not carried or not context.is_small or context.counts.most[node.loop] < 2:
        return ""
    for operation in context.within(node):
        stored = () if operation.kind == "read" else operation.node.operands[1:]
        if context.plan.flow.computed_from(stored) & carried:
            return "a sequential loop carries state that each step stores, on a small grid"
    return ""


def _shares_state(context: LoopContext, node: Node) -> str:
    """Detect state that goes through memory, with a barrier or a wait in the loop."""
    if not context.is_small:
        return ""
    inside = context.within(node)
    read = {root for operation in inside if operation.kind == "read" for root in operation.roots}
    written = {root for operation in inside if operation.kind != "read" for root in operation.roots}
    waits = any(
        (other.name in BARRIERS or (other.name == "scf.while" and other is not node))
        and is_inside(other.body, node)
        for other in context.plan.tree.nodes()
    )
    if read & written and waits:
        return "a sequential loop hands state on through memory, on a small grid"
    return ""


def _feeds_back(context: LoopContext, node: Node) -> str:
    """Detect state that is a factor of the product that makes the next state."""
    if not context.is_small or context.counts.most[node.loop] < 2:
        return ""
    dots = (other for other in context.plan.tree.nodes() if other.name == "tt.dot")
    for other in (dot for dot in dots if is_inside(dot.body, node)):
        # The third operand is what the product is added to.
        if context.plan.flow.computed_from(other.operands[:2]) & set(other.results):
            return "a sequential loop multiplies the state that it carries, on a small grid"
    return ""


def _carried_tensors(plan: EvaluationPlan, node: Node) -> list[int]:
    body = node.regions[0][0]
    arguments = body.arguments[1:] if node.name == "scf.for" else body.arguments
    kinds = {argument: plan.tree.type_of(argument) for argument in arguments}
    return [at for at, kind in kinds.items() if kind.is_tensor and not kind.addresses]


def _carried_floats(plan: EvaluationPlan, node: Node) -> list[int]:
    return [at for at in _carried_tensors(plan, node) if plan.tree.type_of(at).is_float]


def _comes_from(context: LoopContext, values: Iterable[int], name: str) -> bool:
    sources = context.plan.tree.sources
    reached = context.plan.flow.computed_from(values)
    owners = (sources[value][0] for value in reached)
    return any(isinstance(owner, Node) and owner.name == name for owner in owners)


def _neighbours(grid: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    x, y, z = (min(1, size - 1) for size in grid)
    return [(0, 0, 0), (x, 0, 0), (0, y, 0), (0, 0, z)]


def _evaluated_program(context: LoopContext, program: tuple[int, int, int]) -> ProgramEvaluator:
    machine = ProgramEvaluator(context.plan, context.launch, ExecutionCounts.of(context.plan))
    machine.run(program, 0.0, 4)
    return machine


_STAGES: Final = re.compile(r"tt\.num_stages = (\d{1,4})").search
_UNROLL: Final = re.compile(r"tt\.loop_unroll_factor = (\d{1,4})").search


def describe_loops(
    plan: EvaluationPlan, counts: ExecutionCounts, evaluated: int
) -> tuple[LoopWork, ...]:
    """Return every loop with its counts over the programs evaluated."""
    dots, stores = _containing(plan)
    unknown = {node.loop: reason for node, reason in counts.unknown.values() if node.loop >= 0}
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
                warp_specialized="tt.warp_specialize" in node.text,
                is_while=node.name == "scf.while",
                has_dot=loop in dots,
                carries_tensor=bool(_carried_tensors(plan, node)),
                stores=loop in stores,
                unknown=unknown[loop].reason if loop in unknown else "",
            )
        )
    return tuple(described)


def _containing(plan: EvaluationPlan) -> tuple[set[int], set[int]]:
    dots: set[int] = set()
    stores: set[int] = set()
    for node in plan.tree.nodes():
        if node.name.startswith("tt.dot"):
            dots.update(node.body.loops())
        elif KINDS.get(node.name, "read") != "read":
            stores.update(node.body.loops())
    return dots, stores


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
