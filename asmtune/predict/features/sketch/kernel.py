"""Cut a TTGIR kernel into segments: the PTX that each loop's own operations become."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from asmtune.core.hardware.model import L2_BYTES_PER_CYCLE, Target, tensor_rate
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.costs import PRODUCTS
from asmtune.ir.ttir.parser import parse_ttir
from asmtune.ir.ttir.tree import Body, Node, build_tree
from asmtune.predict.features.chain import (
    BARRIER_LATENCY,
    COPY_LATENCY,
    LATENCY,
    LINKED,
    Action,
    InstructionStep,
)
from asmtune.predict.features.sketch.demand import MEMORY, Demand, Spread
from asmtune.predict.features.sketch.layouts import WARP, read_aliases
from asmtune.predict.features.sketch.memory import Sums, add_access, expected_bytes, vector_of
from asmtune.predict.features.sketch.tiles import TILES, Tile, add_product
from asmtune.predict.features.sketch.values import (
    BARRIERS,
    DEFAULT,
    FIXED,
    FREE,
    Values,
    element_cost,
    is_pointwise,
)

_ACTIONS: Final[Mapping[str, tuple[Action, ...]]] = {
    "tt.load": (Action.GLOBAL_LOAD,),
    "tt.store": (Action.GLOBAL_STORE,),
    "tt.atomic_rmw": (Action.ATOMIC,),
    "tt.atomic_cas": (Action.ATOMIC,),
    "ttg.async_copy_global_to_local": (Action.COPY,),
    "ttg.async_commit_group": (Action.COPY_COMMIT,),
    "ttg.async_wait": (Action.COPY_WAIT,),
    "ttg.local_load": (Action.SHARED,),
    "ttg.local_store": (Action.SHARED,),
    "ttg.local_alloc": (Action.SHARED,),
    "ttg.convert_layout": (Action.SHARED, Action.SHARED),
    "ttng.warp_group_dot": (Action.PRODUCT, Action.PRODUCT_COMMIT),
    "ttng.warp_group_dot_wait": (Action.PRODUCT_WAIT,),
    "ttng.tc_gen5_mma": (Action.PRODUCT, Action.PRODUCT_COMMIT),
    "ttng.tc_gen5_mma_scaled": (Action.PRODUCT, Action.PRODUCT_COMMIT),
    "ttng.async_tma_copy_global_to_local": (Action.BULK,),
    "ttng.wait_barrier": (Action.BULK_WAIT,),
}
_STILL: Final = re.compile(r"(?:num|pendings) = (\d+)").search
_SILENT: Final = frozenset(
    {Action.COPY, Action.COPY_COMMIT, Action.COPY_WAIT, Action.BULK, Action.BULK_WAIT}
)
_LATENT: Final[Mapping[Action, float]] = {
    Action.GLOBAL_LOAD: LATENCY[OpClass.GLOBAL],
    Action.GLOBAL_STORE: LATENCY[OpClass.GLOBAL],
    Action.ATOMIC: LATENCY[OpClass.ATOMIC],
    Action.SHARED: LATENCY[OpClass.SHARED],
    Action.COPY: COPY_LATENCY,
    Action.BULK: COPY_LATENCY,
    Action.MMA: LATENCY[OpClass.TENSOR],
}


class StepMaker:
    """Makes the steps of operations for one target.

    Each operation is one step of `asmtune.predict.features.chain`. The values that it reads and
    writes are those of the text. Elements of a tile follow each other so closely that the latency
    of one is that of all. Loops hand their values from one trip to the next.
    """

    def __init__(self, target: Target, warps: int) -> None:
        self._target = target
        self._threads = warps * WARP

    def steps(self, node: Node, before: Sums, after: Sums) -> list[InstructionStep]:
        """Return the steps of one operation, from its segment before and after it was counted."""
        reads, writes = tuple(map(str, node.operands)), tuple(map(str, node.results))
        actions = _ACTIONS.get(node.name, (Action.COMPUTE,))
        if node.name == "tt.dot":
            multiplied = after.flops != before.flops
            actions = (Action.MMA,) if multiplied else (Action.COMPUTE,)
        elif actions[0] is Action.SHARED and after.traffic == before.traffic:
            actions = (Action.COMPUTE,)
        if actions[0] in _SILENT:
            # Others wait for groups of them, and not for their tokens.
            reads, writes = (reads, ()) if actions[0] is Action.COPY else ((), ())
        if actions == (Action.COMPUTE,):
            latency = self._computing(node, before, after)
            return [InstructionStep(Action.COMPUTE, reads, writes, latency)]
        match = _STILL(node.text)
        still = int(match[1]) if match else 0
        return [
            InstructionStep(
                action,
                reads,
                writes,
                _LATENT.get(action, 0.0),
                self._busy(action, before, after),
                still,
            )
            for action in actions
        ]

    def _computing(self, node: Node, before: Sums, after: Sums) -> float:
        added = after.classes - before.classes
        if node.name in ("tt.reduce", "tt.scan"):
            words = 4.0 * math.sqrt(max(0, added[OpClass.SHUFFLE]))
            own = min(added[OpClass.FLOAT] + added[OpClass.INTEGER], 64.0)
            chain = own * LATENCY[OpClass.FLOAT] + 5 * LATENCY[OpClass.SHUFFLE] + words
            return chain + added[OpClass.BARRIER] * (BARRIER_LATENCY + LATENCY[OpClass.SHARED])
        kinds = [kind for kind, number in added.items() if number > 0]
        once: float = sum(LATENCY.get(kind, 0.0) for kind in kinds)
        return once * DEPTH.get(node.name, 1.0)

    def _busy(self, action: Action, before: Sums, after: Sums) -> float:
        if action in LINKED:
            moved = after.traffic - before.traffic
            size = sum(traffic.bytes * number for traffic, number in moved.items())
            return size * self._threads / L2_BYTES_PER_CYCLE
        if action not in (Action.MMA, Action.PRODUCT):
            return 0.0
        cycles = 0.0
        for (kind, operand), flops in (after.flops - before.flops).items():
            idle = 4 * WARP / self._threads if kind == "mma.sync" else 1.0
            cycles += flops / tensor_rate(self._target, kind, operand) * max(1.0, idle)
        return cycles


DEPTH: Final = {"math.erf": 8.0, "math.log": 6.0, "math.sin": 8.0, "math.cos": 8.0}
"""Length of the dependent chain within one operation, if it is long."""


def loop_carry_steps(node: Node) -> list[InstructionStep]:
    """Return steps that hand a trip's values on to the next trip and to what comes after."""
    owner = node.body.owner
    if node.name != "scf.yield" or owner is None or owner.name != "scf.for":
        return []
    inside = owner.regions[0][0].arguments[1:]
    pairs = zip(node.operands, inside, strict=False)
    return [InstructionStep(Action.COMPUTE, (str(a),), (str(b),), 0.0) for a, b in pairs]


class SketchedKernel:
    """A TTGIR text, walked once.

    The text has `scf` loops. `num_warps` are those of the default partition. `sums` has an entry
    for each segment: code outside all loops, then one a loop.

    Raises:
        ParseError: the text is not an MLIR module of Triton's.
    """

    def __init__(self, ttgir: str, num_warps: int, target: Target) -> None:
        tree = build_tree(parse_ttir(ttgir))
        self.values = Values(tree, read_aliases(ttgir), num_warps)
        self.spread = Spread(self.values)
        accesses = (node for node in tree.nodes() if node.name in MEMORY)
        self.runs = {node: vector_of(self.values, node) for node in accesses}
        wanted = {value: run for node, run in self.runs.items() for value in _addressing(node)}
        self.demand = Demand(self.values, wanted)
        self._places: dict[int, int] = {}
        self.sums = [Sums(None, 0)]
        self.sums[0].add({OpClass.CONSTANT: float(len(tree.kernel.arguments)), OpClass.BRANCH: 1.0})
        for node in tree.loops:
            around = tree.enclosing_loop(node.body)
            parent = 0 if around is None else around + 1
            self.sums.append(Sums(parent, self.sums[parent].depth + 1))
        self._maker = StepMaker(target, num_warps)
        for body in tree.bodies:
            # The combining function of a reduction or a scan is counted with it.
            if body.owner is None or body.owner.name not in ("tt.reduce", "tt.scan"):
                for node in body.nodes:
                    self._walk(node)

    def elements(self, value: int) -> int:
        """Return the different elements of a value that a thread computes; 1 for a scalar."""
        kind = self.values.kind(value)
        if not kind.shape or kind.role != "tensor":
            return 1
        axes, run = self.spread.of(value), self.demand.of(value)
        return self.values.layout(value).distinct(axes, run)

    def segment_of(self, body: Body) -> int:
        """Return the position of the segment that a block's code is in."""
        loop = self.values.tree.enclosing_loop(body)
        return 0 if loop is None else loop + 1

    def _home(self, node: Node) -> int:
        """Return the segment of an operation once loop invariants are moved out."""
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
        sums = self.sums[node.loop + 1 if node.loop >= 0 else self._home(node)]
        before = sums.snapshot()
        self._count(sums, node)
        if node.loop >= 0:
            sums = self.sums[self.segment_of(node.body)]
        sums.steps += loop_carry_steps(node) or self._maker.steps(node, before, sums)

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
                sums.use_shared("load")
            add_product(sums, self.values, node)
        elif node.name in TILES:
            TILES[node.name](sums, Tile(self.values, self.spread, node, line))
        elif node in self.runs:
            add_access(sums, self.values, node, self.runs[node], line)
            self._guard(sums, node)
        elif node.results:
            self._compute(sums, node)

    def _compute(self, sums: Sums, node: Node) -> None:
        """Count element-wise operations, and unknown ones."""
        cost = DEFAULT
        if is_pointwise(node) and node.operands:
            operand = self.values.kind(node.operands[0])
            cost = element_cost(node, self.values.kind(node.results[0]), operand)
        sums.add(cost, self.elements(node.results[0]))

    def _guard(self, sums: Sums, node: Node) -> None:
        """Add the mask of an asynchronous copy, and the barrier before it."""
        if node.name != "ttg.async_copy_global_to_local":
            return
        if " mask " in node.text:
            sums.add({OpClass.LOGIC: self.elements(node.operands[2])})
        if sums.read:
            # Data that the last trip read is overwritten: all warps must have read it.
            sums.add_barrier()


def _add_fixed(sums: Sums, node: Node) -> None:
    sums.add(FIXED[node.name])
    for _ in range(BARRIERS.get(node.name, 0)):
        sums.add_barrier()
    if node.name == "ttng.barrier_expect":
        sums.tma_bytes += expected_bytes(node)


def _addressing(node: Node) -> tuple[int, ...]:
    """Return operands of a memory operation that are needed once a vector."""
    if node.name in ("tt.store", "tt.atomic_rmw", "ttg.async_copy_global_to_local"):
        return (node.operands[0], *node.operands[2:])
    return node.operands[:2]
