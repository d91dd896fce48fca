"""Detect persistent kernels: few programs, each walking many tiles or steps in one loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from asmtune.ir.ttir.costs import BARRIERS
from asmtune.ir.ttir.evaluate import ExecutionCounts, ProgramArguments, ProgramEvaluator
from asmtune.ir.ttir.memory import MemoryOperation
from asmtune.ir.ttir.plan import EvaluationPlan, terminator
from asmtune.ir.ttir.scalars import Unknown
from asmtune.ir.ttir.tree import Node, is_inside

PROCESSORS: Final = 132
"""Multiprocessors assumed where the caller names none: an H100's or H200's."""
_FEW: Final = 2


@dataclass(frozen=True)
class LoopContext:
    """A kernel, its launch and its counts, for judging whether a loop is persistent.

    Attributes:
        plan: the kernel.
        launch: arguments and grid.
        operations: its memory operations.
        counts: runs and trips of the programs evaluated.
        processors: multiprocessors of the machine.
    """

    plan: EvaluationPlan
    launch: ProgramArguments
    operations: list[MemoryOperation]
    counts: ExecutionCounts
    processors: int

    @property
    def programs(self) -> int:
        """Programs of the launch."""
        x, y, z = self.launch.grid
        return x * y * z

    @property
    def is_small(self) -> bool:
        """True if the grid has at most `_FEW` programs for each multiprocessor."""
        return self.programs <= _FEW * self.processors

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

    Args:
        context: the launch.
        start: the value that the loop starts with.
        step: the step as a value, or the values before and after a step.
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
    if not context.is_small or not _carried(context, node):
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
    carried = set(_carried(context, node))
    if not carried or not context.is_small or context.counts.most[node.loop] < 2:
        return ""
    for operation in context.within(node):
        if operation.kind != "read":
            reached = context.plan.flow.computed_from(operation.node.operands[1:])
            if reached & carried:
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
        and is_inside(body, node)
        for body in context.plan.tree.bodies
        for other in body.nodes
    )
    if read & written and waits:
        return "a sequential loop hands state on through memory, on a small grid"
    return ""


def _feeds_back(context: LoopContext, node: Node) -> str:
    """Detect state that is a factor of the product that makes the next state."""
    if not context.is_small or context.counts.most[node.loop] < 2:
        return ""
    for body in context.plan.tree.bodies:
        if is_inside(body, node):
            for other in body.nodes:
                # The third operand is what the product is added to.
                factors = other.operands[:2] if other.name == "tt.dot" else ()
                if factors and context.plan.flow.computed_from(factors) & set(other.results):
                    return "a sequential loop multiplies the state that it carries, on a small grid"
    return ""


def carried_tensors(plan: EvaluationPlan, node: Node) -> list[int]:
    """Return the block arguments of a loop that are tensors of numbers."""
    body = node.regions[0][0]
    arguments = body.arguments[1:] if node.name == "scf.for" else body.arguments
    tensors = []
    for argument in arguments:
        kind = plan.tree.type_of(argument)
        if kind.is_tensor and not kind.addresses:
            tensors.append(argument)
    return tensors


def _carried(context: LoopContext, node: Node) -> list[int]:
    """Return carried tensors of floats."""
    tree = context.plan.tree
    return [
        argument
        for argument in carried_tensors(context.plan, node)
        if tree.type_of(argument).is_float
    ]


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
