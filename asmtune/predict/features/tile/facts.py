"""Read the TTIR of one tile into a structure, and into numbers that other tiles share in form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.analysis import Kernel
from asmtune.ir.ttir.costs import PRODUCTS
from asmtune.ir.ttir.strides import Repeated
from asmtune.ir.ttir.tree import Body, Node
from asmtune.ir.ttir.work import MemoryAccess, Work
from asmtune.predict.features.chain import LATENCY, Action, InstructionStep, chain_cycles
from asmtune.predict.features.sketch.demand import Run, Spread
from asmtune.predict.features.sketch.kernel import DEPTH, loop_carry_steps
from asmtune.predict.features.sketch.memory import Sums
from asmtune.predict.features.sketch.registers import LiveRegisters
from asmtune.predict.features.sketch.tiles import combining
from asmtune.predict.features.sketch.values import (
    DEFAULT,
    FIXED,
    FREE,
    Cost,
    Values,
    axis_of,
    element_cost,
    is_pointwise,
)
from asmtune.predict.features.tile.interpolate import (
    ISSUED,
    AccessForm,
    CollectiveForm,
    DotForm,
    LoopForm,
    Structure,
    TileFacts,
)

_COLLECTIVE: Final = frozenset({"tt.reduce", "tt.scan", "tt.gather", "tt.histogram"})
_MOVES: Final = frozenset(
    {"tt.trans", "tt.reshape", "tt.broadcast", "tt.expand_dims", "tt.join", "tt.split", "tt.cat"}
)  # fmt: skip
"""Operations through which, beside arithmetic, a loaded tile becomes a product's operand."""

_CROSSING: Final = 5 * LATENCY[OpClass.SHUFFLE] + 2 * (30.0 + LATENCY[OpClass.SHARED])
"""Cycles of a reduction: shuffles of a warp, then two barriers and shared memory."""


def tile_facts(kernel: Kernel, work: Work) -> TileFacts:
    """Read a parsed TTIR and the work of one of its launches.

    Raises:
        LookupError, ValueError: the text has types or operations that are not understood.
    """
    return _Reader(kernel, work).read()


class _Alive:
    """Stands in for a sketched kernel where live registers are counted: a tile, not a thread."""

    def __init__(
        self, values: Values, spread: Spread, hidden: set[int], segments: int, vector: float
    ) -> None:
        self.values, self._spread, self._hidden, self._vector = values, spread, hidden, vector
        self.sums = [Sums(None, 0) for _ in range(segments)]
        self.runs: Mapping[Node, Run] = {}

    def elements(self, value: int) -> float:
        """Return the different elements of a value that stays in registers."""
        if value in self._hidden:
            return 0.0
        kind = self.values.kind(value)
        shared = self._vector if kind.shape and _is_index(kind.element) else 1.0
        return distinct(self.values, self._spread, value) / shared


def distinct(values: Values, spread: Spread, value: int) -> int:
    """Return the different elements of a value; 1 for a scalar."""
    kind = values.kind(value)
    if not kind.shape or kind.role != "tensor":
        return 1
    return math.prod(kind.shape[axis] for axis in spread.of(value) if axis < len(kind.shape))


class _Reader:
    def __init__(self, kernel: Kernel, work: Work) -> None:
        self.tree, self.placement, self.work = kernel.tree, kernel.placement, work
        self.values = Values(self.tree, {}, 4)
        self.spread = Spread(self.values)
        live = [node for node in self.tree.nodes() if self.placement.is_live(node)]
        self.nodes = [node for node in live if not self._inside_collective(node)]
        self.by_operation = {
            id(operation.node): access
            for operation, access in zip(
                (one for one in kernel.operations if self.placement.is_live(one.node)),
                work.accesses,
                strict=True,
            )
        }
        self.makers = {result: node for node in self.nodes for result in node.results}
        self.multiplied = self._multiplied()

    def read(self) -> TileFacts:
        nodes, elements = self._pointwise()
        accesses, moved = self._accesses()
        collectives, gathered = self._collectives()
        dots, extents = self._dots()
        loops = tuple(
            LoopForm(
                0 if loop.parent is None else loop.parent + 1,
                loop.depth,
                loop.has_dot,
                loop.num_stages is not None,
            )
            for loop in self.work.loops
        )
        trips = [
            number
            for loop in self.work.loops
            for number in (
                loop.iterations,
                _stretch(loop.trips, loop.most, loop.entries),
                float(loop.num_stages or 0),
            )
        ]
        unique = self.work.unique_read_bytes + self.work.unique_written_bytes
        turns = [self.work.updates(f"tt.atomic_{name}") for name in ("rmw", "cas")]
        whole = [self._peak(), unique, *turns]
        rows = (elements, moved, gathered, extents, trips, self._chains(), whole)
        numbers = np.array([number for row in rows for number in row], dtype=np.float64)
        return TileFacts(Structure(nodes, accesses, collectives, dots, loops), numbers)

    def _inside_collective(self, node: Node) -> bool:
        owner = node.body.owner
        return owner is not None and owner.name in ("tt.reduce", "tt.scan", "tt.map_elementwise")

    def _segment(self, body: Body) -> int:
        loop = self.tree.enclosing_loop(body)
        return 0 if loop is None else loop + 1

    def _home(self, node: Node) -> int:
        return node.loop + 1 if node.loop >= 0 else self._segment(self.placement.home(node))

    def _cost(self, node: Node) -> Cost:
        if node.name in FREE or not (node.results or node.name in FIXED):
            return {}
        if node.name in FIXED:
            return FIXED[node.name]
        if is_pointwise(node) and node.operands:
            kinds = self.values.kind(node.results[0]), self.values.kind(node.operands[0])
            return element_cost(node, *kinds)
        return DEFAULT

    def _pointwise(self) -> tuple[tuple[tuple[int, tuple[float, ...], bool], ...], list[float]]:
        forms, elements = [], []
        for node in self.nodes:
            if node.name in _COLLECTIVE or node.name in PRODUCTS or id(node) in self.by_operation:
                continue
            cost = self._cost(node)
            costs = tuple(float(cost.get(kind, 0.0)) for kind in ISSUED)
            if not any(costs):
                continue
            kind = self.values.kind(node.results[0]) if node.results else None
            addresses = kind is not None and bool(kind.shape) and _is_index(kind.element)
            # A scalar is computed by every thread: no elements are shared out.
            count = 0.0
            if kind is not None and kind.shape:
                count = float(distinct(self.values, self.spread, node.results[0]))
            forms.append((self._home(node), costs, addresses))
            elements.append(count)
        return tuple(forms), elements

    def _multiplied(self) -> dict[int, bool]:
        """Return the values that a product reads; True if nothing was computed on the way."""
        values: dict[int, bool] = {}
        for node in self.nodes:
            if node.name not in PRODUCTS:
                continue
            for operand in node.operands[:2]:
                self._follow(operand, True, values)
        return values

    def _follow(self, value: int, direct: bool, values: dict[int, bool]) -> None:
        if value in values and values[value] >= direct:
            return
        values[value] = direct
        node = self.makers.get(value)
        if node is not None and (node.name in _MOVES or is_pointwise(node)):
            same = node.name in ("tt.trans", "tt.reshape", "tt.bitcast", "arith.bitcast")
            for operand in node.operands:
                self._follow(operand, direct and same, values)

    def _accesses(self) -> tuple[tuple[AccessForm, ...], list[float]]:
        sizes = {use.index: use.size_bytes or 0 for use in self.work.arguments}
        forms, numbers = [], []
        for node in self.nodes:
            access = self.by_operation.get(id(node))
            if access is None:
                continue
            result = node.results[0] if node.results else -1
            one = len(access.arguments) == 1 and not access.foreign
            argument = access.arguments[0] if one else -1
            forms.append(
                AccessForm(
                    access.kind,
                    0 if access.loop is None else access.loop + 1,
                    access.line,
                    argument,
                    sizes.get(argument, 0),
                    access.element_bytes,
                    "descriptor" in access.operation or "experimental" in access.operation,
                    result in self.multiplied,
                )
            )
            numbers += [float(access.elements), _contiguous(access), access.runs, access.share]
        return tuple(forms), numbers

    def _collectives(self) -> tuple[tuple[CollectiveForm, ...], list[float]]:
        forms, numbers = [], []
        for node in self.nodes:
            if node.name not in _COLLECTIVE:
                continue
            kinds = [self.values.kind(value) for value in node.operands]
            shape = kinds[0].shape or (1,)
            length = shape[min(axis_of(node), len(shape) - 1)]
            words = sum(max(1, kind.bits // 32) for kind in kinds)
            cost = sum(combining(self.values, node).values()) if node.regions else 1.0
            scans = node.name != "tt.reduce"
            of_product = self._from_product(node.operands[0])
            forms.append(CollectiveForm(self._home(node), words, float(cost), scans, of_product))
            entering = float(math.prod(shape))
            numbers += [entering, entering / length, float(length)]
        return tuple(forms), numbers

    def _from_product(self, value: int, depth: int = 8) -> bool:
        node = self.makers.get(value)
        if node is None or depth == 0:
            return False
        if node.name in PRODUCTS:
            return True
        return is_pointwise(node) and any(
            self._from_product(operand, depth - 1) for operand in node.operands
        )

    def _dots(self) -> tuple[tuple[DotForm, ...], list[float]]:
        nodes = [node for node in self.nodes if node.name in PRODUCTS]
        forms, numbers = [], []
        for node, work in zip(nodes, self.work.dots, strict=True):
            dot = work.dot
            loaded = self._is_loaded(node.operands[0])
            chained = self._from_product(node.operands[0]) or any(
                self._from_product(other.operands[0]) for other in nodes if other is not node
            )
            forms.append(
                DotForm(
                    0 if work.loop is None else work.loop + 1,
                    dot.operand,
                    dot.operand_bits,
                    dot.accumulator,
                    work.precision == "ieee",
                    not loaded,
                    chained,
                )
            )
            numbers += [float(dot.m), float(dot.n), float(dot.k), float(dot.batch), work.runs]
        return tuple(forms), numbers

    def _is_loaded(self, value: int) -> bool:
        node = self.makers.get(value)
        while node is not None and node.name in ("tt.trans", "tt.reshape", "tt.bitcast"):
            node = self.makers.get(node.operands[0])
        return node is not None and id(node) in self.by_operation

    def _peak(self) -> float:
        """Return the words that all threads together need at once."""
        live = {result for node in self.nodes for result in node.results}
        owned = {value for body in self.tree.bodies for value in body.arguments}
        every = {result for node in self.tree.nodes() for result in node.results}
        hidden = every - live - owned
        # What a product reads as it was loaded lies in shared memory.
        hidden |= {
            result
            for node in self.nodes
            if id(node) in self.by_operation
            for result in node.results
            if self.multiplied.get(result, False)
        }
        segments = len(self.tree.loops) + 1
        # One address serves all elements of a vector.
        runs = [_contiguous(access) for access in self.work.accesses]
        vector = max(1.0, float(np.median(runs))) if runs else 1.0
        alive = _Alive(self.values, self.spread, hidden, segments, vector)
        return LiveRegisters(alive).peak()

    def _chains(self) -> list[float]:
        """Return cycles of each segment's latencies: loads waited for, and copied ahead."""
        segments = len(self.tree.loops) + 1
        chains = []
        both = [self._steps(segments, ahead) for ahead in (False, True)]
        for segment in range(segments):
            for steps in both:
                chains.append(chain_cycles(steps[segment], 4, 2, repeats=segment > 0))
        return chains

    def _steps(self, segments: int, ahead: bool) -> list[list[InstructionStep]]:
        steps: list[list[InstructionStep]] = [[] for _ in range(segments)]
        for node in self.nodes:
            own = loop_carry_steps(node)
            if own:
                steps[self._segment(node.body)] += own
                continue
            steps[self._home(node)].append(self._step(node, ahead))
        return steps

    def _may_be_copied(self, node: Node, access: MemoryAccess) -> bool:
        own = access.loop is not None and self.work.loops[access.loop].num_stages is not None
        return own or any(result in self.multiplied for result in node.results)

    def _step(self, node: Node, ahead: bool) -> InstructionStep:
        reads, writes = tuple(map(str, node.operands)), tuple(map(str, node.results))
        access = self.by_operation.get(id(node))
        if access is not None and access.kind == "read":
            copied = ahead and self._may_be_copied(node, access)
            kind = OpClass.SHARED if copied else OpClass.GLOBAL
            action = Action.SHARED if copied else Action.GLOBAL_LOAD
            return InstructionStep(action, () if copied else reads, writes, LATENCY[kind])
        if access is not None:
            atomic = access.kind == "atomic"
            action = Action.ATOMIC if atomic else Action.GLOBAL_STORE
            latency = LATENCY[OpClass.ATOMIC if atomic else OpClass.GLOBAL]
            return InstructionStep(action, reads, writes, latency)
        if node.name in PRODUCTS:
            return InstructionStep(Action.MMA, reads, writes, LATENCY[OpClass.TENSOR])
        if node.name in _COLLECTIVE:
            return InstructionStep(Action.COMPUTE, reads, writes, _CROSSING)
        kinds = [kind for kind, number in self._cost(node).items() if number > 0]
        latency = sum(LATENCY.get(kind, 0.0) for kind in kinds) * DEPTH.get(node.name, 1.0)
        return InstructionStep(Action.COMPUTE, reads, writes, latency)


def _is_index(element: str) -> bool:
    return element.startswith(("!tt.ptr", "i1", "i32", "i64"))


def _contiguous(access: MemoryAccess) -> float:
    """Return the neighbours that one instruction can move: a power of two up to 16 bytes.

    Rows that begin at other addresses than multiples of that cut it; 0 means a tile whose
    nearest neighbours are not adjacent.
    """
    widest = max(1, 16 // max(1, access.element_bytes))
    strides = access.strides
    if None in strides:
        return float(widest)
    if 1 not in strides:
        shared = any(isinstance(step, Repeated) and abs(step.step) == 1 for step in strides)
        return 1.0 if shared or not any(strides) else 0.0
    rows = [abs(stride) for stride in strides if isinstance(stride, int) and abs(stride) > 1]
    return float(math.gcd(widest, *rows)) if rows else float(widest)


def _stretch(trips: float, most: int, entries: float) -> float:
    return most / trips if entries <= 1 and 0 < trips < most else 1.0
