"""Find the furthest byte that an access reaches behind an argument, where the text tells it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from asmtune.ir.ttir.evaluate import ProgramArguments
from asmtune.ir.ttir.memory import MASKED, MemoryOperation, mask_of
from asmtune.ir.ttir.mlir_types import DENSE
from asmtune.ir.ttir.operations import EvaluationStep, apply
from asmtune.ir.ttir.plan import EvaluationPlan
from asmtune.ir.ttir.scalars import constant
from asmtune.ir.ttir.tree import Body, Node

Range = tuple[int, int]

_RANGE: Final = re.compile(r"(end|start) = (\d+)").findall
_PASSING: Final = frozenset(
    {"tt.splat", "tt.broadcast", "tt.expand_dims", "arith.extsi", "ttg.convert_layout",
     "gluon.set_auto_layout"}
)  # fmt: skip
_DEPTH: Final = 100


@dataclass
class Extents:
    """Ranges of offsets in one program; None where a value is not affine in what is known.

    Terms of a sum count as independent, so that only what differs by tile axes and loops adds up.
    """

    plan: EvaluationPlan
    launch: ProgramArguments
    program: tuple[int, int, int]

    def __post_init__(self) -> None:
        self._limits: dict[int, int] = {}
        self._known: dict[int, Range | None] = {}
        self._depth = 0

    def end(self, operation: MemoryOperation) -> int | None:
        """Return the bytes from an argument's start to the end of what an operation reaches."""
        node, mask = operation.node, mask_of(operation.node)
        if node.name not in MASKED or len(operation.roots) != 1 or not self._always_runs(node.body):
            return None
        self._limits, self._known = {}, {}
        if mask is not None and not self._bound(mask):
            return None
        self._known = {}  # of ranges without the limits
        offset = self._address(node.operands[0])
        # A limit of a value that is no part of the address may still limit the address.
        is_known = offset is not None and self._limits.keys() <= self._known.keys()
        return None if offset is None or not is_known else (offset[1] + 1) * operation.element_bytes

    def _always_runs(self, body: Body) -> bool:
        owner = body.owner
        if owner is None:
            return body is self.plan.tree.blocks[0]
        return owner.name == "scf.for" and self._always_runs(owner.body)

    def _bound(self, mask: int) -> bool:
        """Note the limits that a mask sets; return False if it is not of upper limits alone."""
        masks, seen = [mask], {mask}
        while masks:
            owner = self._owner(masks.pop())
            if owner is None:
                return False
            if owner.name == "arith.andi" or owner.name in _PASSING:
                masks += set(owner.operands) - seen
                seen.update(owner.operands)
            elif not self._compared(owner):
                return False
        return True

    def _compared(self, owner: Node) -> bool:
        if owner.name != "arith.cmpi" or "slt" not in owner.text[:20]:
            return False
        limit = self._range(owner.operands[1])
        if limit is None or limit[0] != limit[1]:
            return False
        value = self._bare(owner.operands[0])
        all_below = self._range(value)
        if all_below is not None and all_below[1] < limit[0]:
            return True
        self._limits[value] = min(limit[0] - 1, self._limits.get(value, limit[0]))
        return True

    def _bare(self, value: int) -> int:
        while (owner := self._owner(value)) is not None and owner.name in _PASSING:
            value = owner.operands[0]
        return value

    def _owner(self, value: int) -> Node | None:
        owner, _ = self.plan.tree.sources[value]
        return None if isinstance(owner, Body) or owner.regions else owner

    def _address(self, value: int) -> Range | None:
        total: Range | None = (0, 0)
        while (owner := self._owner(value)) is not None:
            if owner.name == "tt.addptr":
                total = _sum(total, self._range(owner.operands[1]))
            elif owner.name not in _PASSING:
                return None
            value = owner.operands[0]
        return total if value in self.plan.tree.blocks[0].arguments else None

    def _range(self, value: int) -> Range | None:
        if value in self._known or self._depth > _DEPTH:
            return self._known.get(value)
        self._depth += 1
        found = self._compute(value)
        self._depth -= 1
        limit = self._limits.get(value)
        if found is not None and limit is not None:
            found = None if limit < found[0] else (found[0], min(found[1], limit))
        self._known[value] = found
        return found

    def _compute(self, value: int) -> Range | None:
        owner, place = self.plan.tree.sources[value]
        if isinstance(owner, Body):
            return self._argument(owner, place)
        if owner.regions:
            return None
        name, text = owner.name, owner.text
        if name == "tt.make_range":
            ends = {key: int(number) for key, number in _RANGE(text)}
            return (ends["start"], ends["end"] - 1) if len(ends) == 2 else None
        if name == "arith.constant":
            dense = DENSE(text)
            number = constant(f"{dense[1]} : {dense[2]}" if dense else text)
            return _point(number)
        for axis, letter in enumerate("xyz"):
            if name in ("tt.get_program_id", "tt.get_num_programs") and letter in text[:4]:
                here = self.program if name == "tt.get_program_id" else self.launch.grid
                return _point(here[axis])
        ranges = [self._range(operand) for operand in owner.operands]
        return self._combine(owner, value, [r for r in ranges if r is not None], len(ranges))

    def _argument(self, body: Body, place: int) -> Range | None:
        if body is self.plan.tree.blocks[0]:
            return _point(self.launch.values.get(place))
        loop = body.owner
        if loop is None or loop.name != "scf.for" or place:
            return None
        bounds = [self._range(bound) for bound in loop.operands[:3]]
        low, high, step = (b[0] if b is not None and b[0] == b[1] else None for b in bounds)
        if low is None or high is None or not step or step < 0 or low >= high:
            return None
        return low, low + (high - 1 - low) // step * step

    def _combine(self, node: Node, value: int, ranges: list[Range], count: int) -> Range | None:
        if len(ranges) != count or not ranges:
            return None
        if node.name in _PASSING:
            return ranges[0]
        if node.name == "arith.addi":
            return _sum(*ranges)
        if node.name == "arith.subi":
            return _sum(ranges[0], (-ranges[1][1], -ranges[1][0]))
        if node.name == "arith.muli":
            corners = [a * b for a in ranges[0] for b in ranges[1]]
            return min(corners), max(corners)
        kind = self.plan.tree.type_of(value)
        if kind.is_tensor or any(low != high for low, high in ranges):
            return None
        step = EvaluationStep(node, kind, self.plan.tree.type_of(node.operands[0]))
        return _point(apply(step, [low for low, _ in ranges]))


def _point(value: object) -> Range | None:
    return (value, value) if isinstance(value, int) else None


def _sum(first: Range | None, second: Range | None) -> Range | None:
    if first is None or second is None:
        return None
    return first[0] + second[0], first[1] + second[1]
