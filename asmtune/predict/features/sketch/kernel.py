"""A TTGIR kernel cut into segments: what each loop's own operations become in PTX."""

from __future__ import annotations

import re
from typing import Final

from asmtune.core.hardware.model import Target
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.expand import build_tree
from asmtune.ir.ttir.tree import Body, Node
from asmtune.ir.ttir.ttir import parse_ttir
from asmtune.predict.features.sketch.alignment import Alignment
from asmtune.predict.features.sketch.costs import DEFAULT, element_cost
from asmtune.predict.features.sketch.demand import MEMORY, Demand, Run, Spread
from asmtune.predict.features.sketch.encodings import read_aliases
from asmtune.predict.features.sketch.memory import add_access, expected_bytes, vector_of
from asmtune.predict.features.sketch.operations import FIXED, FREE, MEETING
from asmtune.predict.features.sketch.products import PRODUCTS, add_product
from asmtune.predict.features.sketch.steps import StepMaker, handing_on
from asmtune.predict.features.sketch.sums import Sums
from asmtune.predict.features.sketch.tiles import TILES, Tile
from asmtune.predict.features.sketch.values import Values, is_pointwise

_PARTITION: Final = re.compile(r"^(\s*)partition(\d+)\((.*)\) num_warps\((\d+)\) \{$", re.MULTILINE)


class SketchedKernel:
    """One TTGIR text, walked once.

    Args:
        ttgir: the module's text, its loops still `scf`.
        num_warps: of the default partition.
        target: the machine.

    Attributes:
        values: of the kernel.
        sums: a segment each: what is outside all loops, then one a loop.

    Raises:
        ParseError: the text is no MLIR module of Triton's.
    """

    def __init__(self, ttgir: str, num_warps: int, target: Target) -> None:
        tree = build_tree(parse_ttir(_with_partitions(ttgir)))
        self.values = Values(tree, read_aliases(ttgir), num_warps)
        self.spread = Spread(self.values)
        self._alignment = Alignment(self.values, self.spread, ttgir)
        self._runs = self._vectors()
        asked = {value: run for node, run in self._runs.items() for value in _addressing(node)}
        self.demand = Demand(self.values, asked)
        self._places: dict[int, int] = {}
        self.sums = [Sums(None, 0)]
        self.sums[0].add({OpClass.CONSTANT: float(len(tree.kernel.arguments)), OpClass.BRANCH: 1.0})
        for node in tree.loops:
            around = tree.enclosing_loop(node.body)
            parent = 0 if around is None else around + 1
            self.sums.append(Sums(parent, self.sums[parent].depth + 1))
        self._maker = StepMaker(target, num_warps)
        for body in tree.bodies:
            if not _combines(body):
                for node in body.nodes:
                    self._walk(node)

    def _vectors(self) -> dict[Node, Run]:
        """Axis and elements of each access: as wide as layout and mask allow."""
        found: dict[Node, Run] = {}
        for body in self.values.tree.bodies:
            for node in body.nodes:
                if node.name in MEMORY:
                    axis, run = vector_of(self.values, node)
                    for mask in _masks(node, self.values):
                        run = min(run, self._alignment.run_of(mask, axis))
                    found[node] = (axis, run)
        return found

    def elements(self, value: int) -> int:
        """Different elements of a value that a thread computes; 1 for a scalar."""
        kind = self.values.kind(value)
        if not kind.shape or kind.role != "tensor":
            return 1
        axes, run = self.spread.of(value), self.demand.of(value)
        return self.values.layout(value).distinct(axes, run)

    def segment_of(self, body: Body) -> int:
        """Position of the segment that a block's code is in."""
        loop = self.values.tree.enclosing_loop(body)
        return 0 if loop is None else loop + 1

    def _home(self, node: Node) -> int:
        """Segment of an operation once what a loop does not change is moved out of it."""
        own = self.segment_of(node.body)
        if not is_pointwise(node) and node.name not in FREE:
            return own
        home = max((self._place(value) for value in node.operands), default=0)
        return min(own, home) if node.name != "scf.yield" else own

    def _place(self, value: int) -> int:
        if value not in self._places:
            owner, _ = self.values.tree.sources[value]
            at = owner if isinstance(owner, Body) else owner.body
            place = self.segment_of(at)
            if isinstance(owner, Node):
                self._places[value] = place
                place = self._home(owner)
            self._places[value] = place
        return self._places[value]

    def _walk(self, node: Node) -> None:
        """Counts an operation, and adds its steps to its segment's."""
        sums = self.sums[node.loop + 1 if node.loop >= 0 else self._home(node)]
        before = sums.snapshot()
        self._count(sums, node)
        if node.loop >= 0:
            sums = self.sums[self.segment_of(node.body)]
        sums.steps += handing_on(node) or self._maker.steps(node, before, sums)

    def _count(self, sums: Sums, node: Node) -> None:
        where = self.values.tree.line_of(node)
        line = where[1] if where else 0
        if node.name in FREE:
            return
        sums.lines.add(line)
        if node.name in FIXED:
            _add_fixed(sums, node)
        elif node.name in PRODUCTS:
            if any(self.values.kind(value).role == "memory" for value in node.operands):
                sums.touch("load")
            add_product(sums, self.values, node)
        elif node.name in TILES:
            TILES[node.name](sums, Tile(self.values, self.spread, node, line))
        elif node in self._runs:
            add_access(sums, self.values, node, self._runs[node], line)
            self._guard(sums, node)
        elif node.results:
            self._compute(sums, node)

    def _compute(self, sums: Sums, node: Node) -> None:
        """Element-wise operations, and those that are not known."""
        cost = DEFAULT
        if is_pointwise(node) and node.operands:
            operand = self.values.kind(node.operands[0])
            cost = element_cost(node, self.values.kind(node.results[0]), operand)
        sums.add(cost, self.elements(node.results[0]))

    def _guard(self, sums: Sums, node: Node) -> None:
        """The mask of an asynchronous copy, and the barrier before it."""
        if node.name != "ttg.async_copy_global_to_local":
            return
        if " mask " in node.text:
            sums.add({OpClass.LOGIC: self.elements(node.operands[2])})
        if sums.read:
            # What the last trip read is overwritten: all warps must be through.
            sums.meet()


def _add_fixed(sums: Sums, node: Node) -> None:
    """Operations whose instructions do not depend on a layout."""
    sums.add(FIXED[node.name])
    if node.name in MEETING:
        sums.meet()
    if node.name == "ttng.barrier_expect":
        sums.tma_bytes += expected_bytes(node)


def _addressing(node: Node) -> tuple[int, ...]:
    """Operands of a memory operation that are asked for once a vector."""
    if node.name in ("tt.store", "tt.atomic_rmw"):
        return (node.operands[0], *node.operands[2:])
    if node.name == "ttg.async_copy_global_to_local":
        return (node.operands[0], *node.operands[2:])
    return node.operands[:2]


def _masks(node: Node, values: Values) -> tuple[int, ...]:
    """Operands of a memory operation that leave elements out: tensors of booleans."""
    return tuple(v for v in node.operands[1:] if values.kind(v).bits == 1)


def _combines(body: Body) -> bool:
    """Whether a block says how a reduction or a scan combines two elements."""
    return body.owner is not None and body.owner.name in ("tt.reduce", "tt.scan")


def _with_partitions(text: str) -> str:
    """Partitions of a warp-specialised kernel written as plain regions with arguments."""
    if "partition" not in text:
        return text
    return _PARTITION.sub(r"\1asmtune.partition {index = \2, num_warps = \4} {\n^bb0(\3):", text)
