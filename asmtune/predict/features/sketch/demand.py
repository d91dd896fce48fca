"""Elements of each value that a thread computes: where they differ and who needs them.

A thread's elements of a tensor become that many values of LLVM's IR; equal ones are merged and
unused ones deleted. So an operation costs one instruction for each different element that is
needed: a mask or an address is needed once for each vector that is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from asmtune.ir.ttir.tree import Body, Node
from asmtune.predict.features.sketch.values import Values, is_pointwise

_AXIS: Final = re.compile(r"axis = (\d+)").search
_ORDER: Final = re.compile(r"order = array<i32: ([\d, ]+)>").search


class Spread:
    """Axes along which the elements of each value differ.

    A loop's own values start as their initial ones, and again as what the loop yields,
    until nothing changes.
    """

    def __init__(self, values: Values) -> None:
        self._values = values
        self.axes: dict[int, frozenset[int]] = {}
        tree = values.tree
        for _ in range(4):
            before = dict(self.axes)
            for body in tree.bodies:
                for argument in body.arguments:
                    self._enter(argument)
                for node in body.nodes:
                    for place, result in enumerate(node.results):
                        self.axes[result] = self._made(node, place, result)
            if self.axes == before:
                break

    def of(self, value: int) -> frozenset[int]:
        """Return the axes along which a value's elements differ."""
        return self.axes.get(value, frozenset())

    def _all(self, value: int) -> frozenset[int]:
        return frozenset(range(len(self._values.kind(value).shape)))

    def _enter(self, value: int) -> None:
        owner, place = self._values.tree.sources[value]
        assert isinstance(owner, Body)
        around = owner.owner
        if around is not None and around.name == "scf.for":
            axes = self.of(value)
            if 0 < place <= len(around.operands) - 3:
                axes |= self.of(around.operands[2 + place])
                axes |= self._handed(around, place - 1)
            self.axes[value] = axes
        else:
            self.axes[value] = self._all(value)

    def _handed(self, node: Node, place: int) -> frozenset[int]:
        axes: frozenset[int] = frozenset()
        for region in node.regions:
            for body in region:
                last = body.nodes[-1] if body.nodes else None
                if last is not None and last.name == "scf.yield" and place < len(last.operands):
                    axes |= self.of(last.operands[place])
        return axes

    def _made(self, node: Node, place: int, result: int) -> frozenset[int]:
        name = node.name
        if not self._values.kind(result).shape:
            return frozenset()
        if name in ("tt.splat", "arith.constant"):
            differ = "dense<[" in node.text or 'dense<"' in node.text
            return self._all(result) if differ else frozenset()
        if name == "scf.for":
            return self.of(node.operands[3 + place]) | self._handed(node, place)
        if name == "scf.if":
            return self._handed(node, place)
        if name == "tt.expand_dims" and (match := _AXIS(node.text)):
            axis = int(match[1])
            return frozenset(d + (d >= axis) for d in self.of(node.operands[0]))
        if name == "tt.trans" and (match := _ORDER(node.text)):
            order = [int(d) for d in match[1].split(",")]
            return frozenset(i for i, d in enumerate(order) if d in self.of(node.operands[0]))
        if name == "tt.reduce" and (match := _AXIS(node.text)):
            axis = int(match[1])
            return frozenset(d - (d > axis) for d in self._all(node.operands[0]) if d != axis)
        if is_pointwise(node) or name in ("tt.broadcast", "ttg.convert_layout", "tt.load"):
            return frozenset().union(*map(self.of, node.operands))
        return self._all(result)


Run = tuple[int, int]
"""An axis, and how many neighbours along it are needed as one."""

EVERY: Final[Run] = (-1, 1)


class Demand:
    """Demand for each value: all of it, or one element of each vector."""

    def __init__(self, values: Values, runs: Mapping[int, Run]) -> None:
        """Walk from the last operation to the first, loops several times.

        `runs` are those of loads, stores and copies, by the value that addresses or masks them.
        """
        self._values = values
        self._asked: dict[int, Run] = dict(runs)
        self._fixed = dict(runs)
        bodies = values.tree.bodies
        for _ in range(3):
            for body in reversed(bodies):
                for node in reversed(body.nodes):
                    self._ask(node)

    def of(self, value: int) -> Run:
        """Return the demand for a value."""
        return self._asked.get(value, EVERY)

    def _ask(self, node: Node) -> None:
        if node.name in MEMORY:
            for value in node.operands:
                if value not in self._fixed:
                    self._need(value, EVERY)
            return
        if node.name in ("scf.for", "scf.yield"):
            self._loop(node)
            return
        run = self._asked.get(node.results[0]) if node.results else EVERY
        if run is None and is_pointwise(node):
            return  # not asked for yet: a loop's own value, until the next round
        for value in node.operands:
            self._need(value, self._through(node, run or EVERY))

    def _through(self, node: Node, run: Run) -> Run:
        if is_pointwise(node) or node.name == "tt.broadcast":
            return run
        if node.name == "tt.expand_dims" and (match := _AXIS(node.text)):
            axis = int(match[1])
            return EVERY if run[0] == axis else (run[0] - (run[0] > axis), run[1])
        return EVERY

    def _loop(self, node: Node) -> None:
        owner = node if node.name == "scf.for" else node.body.owner
        if owner is None or owner.name != "scf.for":
            for value in node.operands:
                self._need(value, EVERY)
            return
        handed = node.operands[3:] if node is owner else node.operands
        inside = owner.regions[0][0].arguments[1:]
        for value, own, result in zip(handed, inside, owner.results, strict=False):
            wanted = [self._asked[v] for v in (own, result) if v in self._asked]
            if wanted:
                self._need(value, wanted[0] if all(a == wanted[0] for a in wanted) else EVERY)

    def _need(self, value: int, run: Run) -> None:
        known = self._asked.get(value)
        if known is None:
            self._asked[value] = run
        elif known != run:
            self._asked[value] = (run[0], min(known[1], run[1])) if known[0] == run[0] else EVERY


MEMORY: Final = frozenset(
    {"tt.load", "tt.store", "ttg.async_copy_global_to_local", "tt.atomic_rmw", "tt.atomic_cas"}
)
"""Operations whose addresses and masks are needed once a vector."""
