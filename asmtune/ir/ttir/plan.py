"""Select the values that must be evaluated to know how often each block runs."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from asmtune.ir.ttir.flow import CONTROL, Flow, control_values
from asmtune.ir.ttir.operations import EvaluationStep, evaluator
from asmtune.ir.ttir.scalars import constant
from asmtune.ir.ttir.tree import Body, Node, Tree

AXES: Final = {"x": 0, "y": 1, "z": 2}
GRID: Final = ("tt.get_program_id", "tt.get_num_programs")
# Operations whose scalar form is computed; others end the search for needed values.
_COMPUTED: Final = (
    "arith.",
    "math.",
    "tt.fp_to_fp",
    "tt.mulhiui",
    "tt.precise",
    "tt.clampf",
    "tt.bitcast",
)
_MEMORY: Final = ("tt.load", "tt.store", "tt.atomic", "tt.descriptor", "tt.dot")
# Assumed trips of loops when the sides of an unknown branch are weighed.
_LOOP_WEIGHT: Final = 16


class EvaluationPlan:
    """A kernel, ready to be evaluated for any program id.

    Attributes:
        tree: the kernel.
        flow: where its values come from.
        needed: values that decide which blocks run, and all values they are computed from.
        constants: needed values that are constants.
        axes: axes of the grid whose program ids are needed.
        grid_values: needed values of `GRID` operations: (name, axis, value).
        steps: for each block, what to evaluate in order.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.flow = Flow(tree)
        self.needed = self.flow.follow(control_values(tree), _operands)
        self.constants: dict[int, float] = {}
        self.axes: set[int] = set()
        self.grid_values: list[tuple[str, int, int]] = []
        self.steps: list[list[EvaluationStep]] = [[] for _ in tree.bodies]
        for body in tree.bodies:
            for node in body.nodes:
                self._plan(body, node)

    def iterates(self, node: Node) -> bool:
        """Return whether a loop's body may behave differently from one trip to the next."""
        return any(value in self.needed for value in node.regions[0][0].arguments)

    @cached_property
    def is_simple(self) -> bool:
        """True if no loop has to be walked trip by trip."""
        loops = self.tree.loops
        return not any(node.name == "scf.while" or self.iterates(node) for node in loops)

    @cached_property
    def weights(self) -> list[int]:
        """Work of each block by position: memory, products, loops."""
        weights = [0] * len(self.tree.bodies)
        for body in reversed(self.tree.bodies):  # an owner's block stands before those inside
            weight = weights[body.index] + sum(map(_weight, body.nodes))
            weights[body.index] = weight
            if body.owner is not None:
                outer = body.owner.body.index
                factor = _LOOP_WEIGHT if body.owner.loop >= 0 else 1
                weights[outer] += weight * factor
        return weights

    def weight_from(self, body: Body) -> int:
        """Return the work of a block and of all blocks that may come after it."""
        seen: set[int] = set()
        pending, total = [body], 0
        while pending:
            at = pending.pop()
            if at.index not in seen:
                seen.add(at.index)
                total += 1 + self.weights[at.index]
                pending += [target for target, _ in at.successors]
        return total

    def _plan(self, body: Body, node: Node) -> None:
        if node.name in CONTROL and node.regions:
            self.steps[body.index].append(EvaluationStep(node))
            return
        if not any(value in self.needed for value in node.results):
            return
        if node.name == "arith.constant":
            value = constant(node.text)
            if value is not None:
                self.constants[node.results[0]] = value
                return
        if node.name in GRID:
            axis = AXES.get(node.text[:1], 0)
            self.grid_values.append((node.name, axis, node.results[0]))
            if node.name == "tt.get_program_id":
                self.axes.add(axis)
            return
        kind = self.tree.type_of(node.results[0])
        operand = self.tree.type_of(node.operands[0]) if node.operands else None
        step = EvaluationStep(node, kind, operand)
        step.run = evaluator(step)
        self.steps[body.index].append(step)


def _operands(node: Node) -> tuple[int, ...] | None:
    """Return the operands needed to compute an operation; None for control operations."""
    if node.regions and node.name in CONTROL:
        return None
    return node.operands if node.name.startswith(_COMPUTED) else ()


def _weight(node: Node) -> int:
    if node.name.startswith(_MEMORY):
        return 8
    return 1 if node.results else 0
