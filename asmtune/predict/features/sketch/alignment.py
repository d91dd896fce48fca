"""How many neighbours a mask treats alike: what divides the numbers that it compares.

Triton widens a masked access only as far as its mask is known not to change; it knows
that from the arguments that are multiples of 16, and from constants
(`lib/Analysis/AxisInfo.cpp`).
"""

from __future__ import annotations

import math
import re
from typing import Final

from asmtune.ir.ttir.tree import Body, Node
from asmtune.predict.features.sketch.demand import Spread
from asmtune.predict.features.sketch.values import Values, inserted_axis

ANY: Final = 1 << 30
"""Stands for "whatever is asked for"."""

_DIVISIBLE: Final = re.compile(r"(%[\w$.\-]+): [^%{]*\{[^}]*tt\.divisibility = (\d+)").findall
_NUMBER: Final = re.compile(r"(?:dense<)?(-?\d+)>? : ").match
_PASSING: Final = frozenset(
    {"tt.splat", "tt.broadcast", "tt.expand_dims", "arith.extsi", "arith.extui", "arith.trunci",
     "ttg.convert_layout", "arith.index_cast"}
)  # fmt: skip
_MOST_STEPS: Final = 60


class Alignment:
    """What divides the integers of a kernel.

    Args:
        values: of the kernel.
        spread: along which axes they differ.
        text: the module's; its function says what divides the arguments.
    """

    def __init__(self, values: Values, spread: Spread, text: str) -> None:
        self._values = values
        self._spread = spread
        kernel = values.tree.kernel
        line = text.split("\n")[kernel.line - 1]
        known = {name: int(number) for name, number in _DIVISIBLE(line)}
        self._known: dict[int, int] = {}
        for value, argument in zip(values.tree.blocks[0].arguments, kernel.arguments, strict=True):
            self._known[value] = known.get(argument.value, 1)

    def run_of(self, mask: int, axis: int, depth: int = 0) -> int:
        """Neighbours along an axis, from a multiple of themselves on, that a mask treats alike."""
        if axis not in self._spread.of(mask):
            return ANY
        owner, _ = self._values.tree.sources[mask]
        if depth > _MOST_STEPS or isinstance(owner, Body):
            return 1
        if owner.name == "tt.expand_dims":
            place = inserted_axis(owner)
            return self.run_of(owner.operands[0], axis - (place < axis), depth + 1)
        if owner.name in _PASSING:
            return self.run_of(owner.operands[0], axis, depth + 1)
        if owner.name in ("arith.andi", "arith.ori", "arith.xori"):
            return min(self.run_of(value, axis, depth + 1) for value in owner.operands)
        if owner.name == "arith.cmpi":
            return min(self.divisor(value) for value in owner.operands)
        return 1

    def divisor(self, value: int, depth: int = 0) -> int:
        """A power of two that divides a number, or the first of a run of numbers."""
        if value not in self._known and depth < _MOST_STEPS:
            self._known[value] = 1  # while it is computed, against cycles
            self._known[value] = self._divisor(value, depth + 1)
        return self._known.get(value, 1)

    def _divisor(self, value: int, depth: int) -> int:
        owner, place = self._values.tree.sources[value]
        if isinstance(owner, Body):
            return self._entering(owner, place, depth)
        operands, name = owner.operands, owner.name
        if name == "arith.constant":
            match = _NUMBER(owner.text)
            return _power(int(match[1])) if match else 1
        if name == "tt.make_range":
            match = re.search(r"start = (\d+)", owner.text)
            return _power(int(match[1])) if match else 1
        if name in _PASSING:
            return self.divisor(operands[0], depth)
        if name in ("arith.addi", "arith.subi", "arith.remsi", "arith.minsi", "arith.select"):
            return min(self.divisor(operand, depth) for operand in operands[-2:])
        if name == "arith.muli":
            product = math.prod(self.divisor(operand, depth) for operand in operands)
            return min(ANY, product)
        return 1

    def _entering(self, body: Body, place: int, depth: int) -> int:
        around = body.owner
        if isinstance(around, Node) and around.name == "scf.for" and place == 0:
            return min(self.divisor(around.operands[i], depth) for i in (0, 2))
        return 1


def _power(number: int) -> int:
    return ANY if number == 0 else number & -number
