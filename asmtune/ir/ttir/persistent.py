"""Detect persistent kernels: walks over tiles, and loops whose state lives across steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from asmtune.ir.ttir.costs import BARRIERS
from asmtune.ir.ttir.evaluate import ExecutionCounts, ProgramArguments, ProgramEvaluator
from asmtune.ir.ttir.memory import MemoryOperation
from asmtune.ir.ttir.plan import EvaluationPlan, terminator
from asmtune.ir.ttir.scalars import Unknown
from asmtune.ir.ttir.tree import Node, is_inside
from asmtune.ir.ttir.work import CarriedState

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
        """Return whether the grid has at most `_FEW` programs for each multiprocessor."""
        return math.prod(self.launch.grid) <= _FEW * self.processors

    def within(self, loop: Node) -> list[MemoryOperation]:
        """Return memory operations in a loop, inner loops included."""
        return [operation for operation in self.operations if is_inside(operation.node.body, loop)]


def walk_reason(context: LoopContext) -> str:
    """Return how a kernel's programs walk tiles, or "" if they do not."""
    tree = context.plan.tree
    for node in tree.loops:
        if node.name == "scf.for" and tree.enclosing_loop(node.body) is not None:
            continue
        if any(operation.kind != "read" for operation in context.within(node)):
            for test in (_walks_tiles, _takes_tiles, _flattened):
                if reason := test(context, node):
                    return reason + _line(context, node)
    return ""


def carried_state(context: LoopContext) -> CarriedState | None:
    """Return the state that goes from step to step of a loop on a small grid, or None.

    A sum that the next tile starts anew is none, nor is one that is stored after its last step:
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

    Sums in memory, which any order of the steps gives, are none.
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


def _carried_floats(plan: EvaluationPlan, node: Node) -> list[int]:
    return [at for at in carried_tensors(plan, node) if plan.tree.type_of(at).is_float]


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
