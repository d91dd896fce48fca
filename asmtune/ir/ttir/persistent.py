"""Detect loops whose state lives across steps, as in recurrences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from asmtune.ir.ttir.costs import BARRIERS
from asmtune.ir.ttir.evaluate import ExecutionCounts, ProgramArguments
from asmtune.ir.ttir.memory import MemoryOperation
from asmtune.ir.ttir.plan import EvaluationPlan
from asmtune.ir.ttir.tree import Node, is_inside
from asmtune.ir.ttir.work import CarriedState

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


def _comes_from(context: LoopContext, values: Iterable[int], name: str) -> bool:
    sources = context.plan.tree.sources
    reached = context.plan.flow.computed_from(values)
    owners = (sources[value][0] for value in reached)
    return any(isinstance(owner, Node) and owner.name == name for owner in owners)
