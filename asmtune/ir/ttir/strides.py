"""How addresses lie next to each other: the step of a tile along each of its axes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from asmtune.ir.ttir.execution_counts import ProgramArguments
from asmtune.ir.ttir.memory import Touch
from asmtune.ir.ttir.operations import EvaluationStep, apply
from asmtune.ir.ttir.plan import EvaluationPlan
from asmtune.ir.ttir.scalars import Unknown, Value, constant
from asmtune.ir.ttir.tree import Body, Node

Steps = tuple[int | None, ...]

_AXIS: Final = re.compile(r"axis = (\d{1,4})").search
_ORDER: Final = re.compile(r"order = array<i32: ([\d, ]{1,99})>").search
_DENSE: Final = re.compile(r"dense<([^\[\"]*)> : tensor<.*?(\w+)>").match
_KEEPING: Final = frozenset(
    {
        "tt.broadcast", "tt.bitcast", "arith.bitcast", "arith.extsi", "arith.extui",
        "arith.trunci", "arith.index_cast",
    }
)  # fmt: skip
# Wrapped or clamped offsets, as in `% M`: neighbours stay neighbours but at an edge.
_CLAMPING: Final = frozenset({"arith.remsi", "arith.remui", "arith.minsi", "arith.maxsi"})
_MAX_DEPTH: Final = 200


class Strides:
    """Steps between neighbours, for one launch.

    Args:
        plan: the kernel.
        launch: the arguments; a stride is a number only if they tell it.
    """

    def __init__(self, plan: EvaluationPlan, launch: ProgramArguments) -> None:
        self._plan = plan
        self._launch = launch
        self._known: dict[int, Steps] = {}
        self._scalars: dict[int, Value] = {}
        self._depth = 0

    def of(self, touch: Touch) -> Steps:
        """Elements between neighbours along each axis of a touched tile; None if unknown."""
        value = touch.node.operands[0]
        kind = self._plan.tree.type_of(value)
        if kind.role == "descriptor":
            # The hardware's copies need a last axis without gaps.
            return (*([None] * (len(kind.shape) - 1)), 1)
        if kind.shape and not kind.is_tensor:
            return self._block_pointer(value, len(kind.shape))
        return self._steps(value)

    def _block_pointer(self, value: int, rank: int) -> Steps:
        sources = self._plan.tree.sources
        for reached in self._plan.flow.follow([value], _first):
            owner, _ = sources[reached]
            if isinstance(owner, Node) and owner.name == "tt.make_tensor_ptr":
                return tuple(map(self._number, owner.operands[1 + rank : 1 + 2 * rank]))
        return (None,) * rank

    def _steps(self, value: int) -> Steps:
        if value not in self._known:
            rank = len(self._plan.tree.type_of(value).shape)
            self._known[value] = (None,) * rank  # while it is computed, against cycles
            self._depth += 1
            if self._depth < _MAX_DEPTH:
                found = self._compute(value)
                self._known[value] = found if len(found) == rank else (None,) * rank
            self._depth -= 1
        return self._known[value]

    def _compute(self, value: int) -> Steps:
        owner, _ = self._plan.tree.sources[value]
        if isinstance(owner, Body) or owner.regions:
            origins = self._plan.flow.origins(value)
            return self._steps(origins[0]) if origins else ()
        name, rank = owner.name, len(self._plan.tree.type_of(value).shape)
        if name == "tt.make_range":
            return (1,)
        if name in ("tt.splat", "arith.constant"):
            return (0,) * rank if name == "tt.splat" or _DENSE(owner.text) else ()
        if name in _KEEPING or name in _CLAMPING:
            return self._steps(owner.operands[0])
        if name == "tt.expand_dims" and (match := _AXIS(owner.text)):
            steps, axis = self._steps(owner.operands[0]), int(match[1])
            return (*steps[:axis], 0, *steps[axis:])
        if name == "tt.trans" and (match := _ORDER(owner.text)):
            steps = self._steps(owner.operands[0])
            return tuple(steps[int(axis)] for axis in match[1].split(","))
        return self._combine(owner)

    def _combine(self, node: Node) -> Steps:
        if node.name in ("tt.addptr", "arith.addi"):
            return self._pair(node, lambda a, b: a + b)
        if node.name == "arith.subi":
            return self._pair(node, lambda a, b: a - b)
        if node.name == "arith.muli":
            first, second = node.operands
            return self._scaled(first, second) or self._scaled(second, first)
        if node.name == "arith.select":
            first_steps, second_steps = map(self._steps, node.operands[1:])
            return first_steps if first_steps == second_steps else ()
        if node.name.startswith(("arith.", "math.")):
            # What is the same for all along an axis gives the same for all.
            axes = zip(*map(self._steps, node.operands), strict=False)
            return tuple(0 if not any(steps) and None not in steps else None for steps in axes)
        return ()

    def _pair(self, node: Node, combine: Callable[[int, int], int]) -> Steps:
        pairs = zip(*map(self._steps, node.operands[:2]), strict=False)
        return tuple(None if a is None or b is None else combine(a, b) for a, b in pairs)

    def _scaled(self, value: int, factor: int) -> Steps:
        if any(step != 0 for step in self._steps(factor)):
            return ()
        by = self._uniform(factor)
        return tuple(
            0 if step == 0 else None if step is None or by is None else step * by
            for step in self._steps(value)
        )

    def _uniform(self, value: int) -> int | None:
        """The number that all elements of a tensor are."""
        owner, _ = self._plan.tree.sources[value]
        if isinstance(owner, Body):
            return None
        if owner.name == "arith.constant" and (match := _DENSE(owner.text)):
            number = constant(f"{match[1]} : {match[2]}")
            return number if isinstance(number, int) else None
        if owner.name == "tt.splat":
            return self._number(owner.operands[0])
        return self._uniform(owner.operands[0]) if owner.name in _KEEPING else None

    def _number(self, value: int) -> int | None:
        found = self._scalar(value)
        return found if isinstance(found, int) else None

    def _scalar(self, value: int) -> Value:
        """A scalar that depends on arguments alone."""
        if value not in self._scalars:
            self._scalars[value] = Unknown("a cycle")
            self._scalars[value] = self._evaluate(value)
        return self._scalars[value]

    def _evaluate(self, value: int) -> Value:
        owner, place = self._plan.tree.sources[value]
        if isinstance(owner, Body):
            if owner is self._plan.tree.blocks[0]:
                return self._launch.values.get(place, Unknown("no value"))
            return Unknown("a loop's")
        if owner.name == "arith.constant":
            number = constant(owner.text)
            return Unknown("no number") if number is None else number
        if not owner.operands or owner.regions or len(self._scalars) > _MAX_DEPTH:
            return Unknown("no number")
        tree = self._plan.tree
        step = EvaluationStep(owner, tree.type_of(value), tree.type_of(owner.operands[0]))
        return apply(step, [self._scalar(operand) for operand in owner.operands])


def _first(node: Node) -> tuple[int, ...] | None:
    return None if node.regions else node.operands[:1]
