"""Select the values that must be evaluated to know how often each block runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Final

from asmtune.ir.ttir.parser import PARTITION, SPECIALIZE
from asmtune.ir.ttir.scalars import TILES, EvaluationStep, Evaluator, constant, evaluator
from asmtune.ir.ttir.tree import RETURNS, Body, Node, Tree

CONTROL: Final = frozenset({"scf.for", "scf.if", "scf.while", "tt.call", "default", PARTITION})
"""Operations whose regions run; the last two are parts of a `ttg.warp_specialize`."""


class Flow:
    """Predecessors of every value of a tree."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._incoming: dict[int, list[tuple[int, ...]]] = {}
        for body in tree.bodies:
            for target, values in body.successors:
                self._incoming.setdefault(target.index, []).append(values)

    def origins(self, value: int) -> list[int]:
        """Return the values that a value is computed from, one step back.

        Conditions that choose between them are left out, except for `arith.select`'s.
        """
        owner, place = self.tree.sources[value]
        if isinstance(owner, Body):
            return self._entering(owner, place)
        return self._result(owner, place)

    def computed_from(self, values: Iterable[int]) -> set[int]:
        """Return all values that these are computed from, themselves included."""
        return self.follow(values, lambda _: None)

    def follow(
        self, values: Iterable[int], step: Callable[[Node], Iterable[int] | None]
    ) -> set[int]:
        """Return the values reached from some, where `step` says how to cross an operation.

        `step` gives the operands to go on with; None for the usual ones of a control operation.
        """
        reached: set[int] = set()
        pending = list(values)
        while pending:
            at = pending.pop()
            if at in reached:
                continue
            reached.add(at)
            owner, _ = self.tree.sources[at]
            onward = step(owner) if isinstance(owner, Node) else None
            pending += self.origins(at) if onward is None else onward
        return reached

    def _result(self, node: Node, place: int) -> list[int]:
        if node.name == SPECIALIZE:  # its results are those of the "default" that follows it
            nodes = node.body.nodes
            node = nodes[nodes.index(node) + 1]
        if node.name not in CONTROL or not node.regions:
            return list(node.operands)
        if node.name == "scf.for":
            return [*_pick(node.operands, 3 + place), *_yielded(node.regions[0], place)]
        if node.name == "scf.while":
            return _yielded(node.regions[0], place + 1)
        return [value for region in node.regions for value in _yielded(region, place)]

    def _entering(self, body: Body, place: int) -> list[int]:
        owner = body.owner
        if body.index in self._incoming:
            return [v for values in self._incoming[body.index] for v in _pick(values, place)]
        if owner is None or body is not owner.regions[0][0]:
            if owner is not None and owner.name == "scf.while":
                return _yielded(owner.regions[0], place + 1)
            return []
        if owner.name == "scf.for":
            if place == 0:
                return list(owner.operands[:3])
            return [*_pick(owner.operands, 2 + place), *_yielded(owner.regions[0], place - 1)]
        if owner.name == "scf.while":
            after = owner.regions[1] if len(owner.regions) > 1 else []
            return [*_pick(owner.operands, place), *_yielded(after, place)]
        if owner.name in ("tt.call", PARTITION):
            return _pick(owner.operands, place)
        return list(owner.operands)  # a combining region sees elements of the operands


def terminator(body: Body) -> Node | None:
    """Return the operation that ends a block and hands values on; None if it is left out."""
    last = body.nodes[-1] if body.nodes else None
    return last if last is not None and last.name in RETURNS else None


def _yielded(region: list[Body], place: int) -> list[int]:
    ends = filter(None, map(terminator, region))
    return [value for last in ends for value in _pick(last.operands, place)]


def _pick(values: tuple[int, ...], place: int) -> list[int]:
    return [values[place]] if place < len(values) else []


def control_values(tree: Tree) -> list[int]:
    """Return the values that decide which blocks run, and how often."""
    values: list[int] = []
    for node in tree.nodes():
        if node.name == "scf.for":
            values += node.operands[:3]
        elif node.name in ("scf.if", "scf.condition", "cf.cond_br", "cf.switch"):
            values += node.operands[:1]
    return values


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
_MEMORY: Final = (
    "tt.load", "tt.store", "tt.atomic", "tt.descriptor", "tt.dot", "ttg.async_copy",
    "ttng.async_tma", "ttng.warp_group_dot", "ttng.tc_gen5_mma",
)  # fmt: skip
_TESTS: Final = frozenset({"tt.load", "tt.atomic_cas", "tt.atomic_rmw"})
# Assumed trips of loops when the sides of an unknown branch are weighed.
_LOOP_WEIGHT: Final = 16


class EvaluationPlan:
    """A kernel, ready to be evaluated for any program id.

    Attributes:
        tree: the kernel.
        loads: results of the loads whose memory is known.
        flow: where its values come from.
        needed: values that decide which blocks run, and all values they are computed from.
        constants: needed values that are constants.
        axes: axes of the grid whose program ids are needed.
        grid_values: needed values of `GRID` operations: (name, axis, value).
        steps: for each block, what to evaluate in order.
    """

    def __init__(
        self, tree: Tree, loads: frozenset[int] = frozenset(), flow: Flow | None = None
    ) -> None:
        self.tree = tree
        self.flow = flow or Flow(tree)
        self.loads = loads
        self.needed = steering_values(self.flow, loads)
        self.constants: dict[int, float] = {}
        self.axes: set[int] = set()
        self.grid_values: list[tuple[str, int, int]] = []
        self.steps: list[list[EvaluationStep]] = [[] for _ in tree.bodies]
        for node in tree.nodes():
            self._plan(node)

    def iterates(self, node: Node) -> bool:
        """Return whether a loop's body may behave differently from one trip to the next."""
        return any(value in self.needed for value in node.regions[0][0].arguments)

    @cached_property
    def is_simple(self) -> bool:
        """Return whether no loop has to be walked trip by trip."""
        loops = self.tree.loops
        return not any(node.name == "scf.while" or self.iterates(node) for node in loops)

    @cached_property
    def waiting(self) -> frozenset[int]:
        """Return the loops that only wait: they test memory at one address, as a lock does.

        How often they test is time, not work.
        """
        return frozenset(node.loop for node in self.tree.loops if self._waits(node))

    def _waits(self, node: Node) -> bool:
        if node.name != "scf.while" or len(node.regions) < 2:
            return False
        before, after = node.regions[0][0], node.regions[1][0]
        inside = [*before.nodes, *after.nodes]
        reads = [one for one in inside if one.name in _TESTS]
        if any(one.regions or one.name.startswith(_MEMORY) for one in inside if one not in reads):
            return False
        carried = {*before.arguments, *after.arguments}
        last = terminator(before)
        tested = self.flow.computed_from(last.operands[:1]) if last else set()
        return any(tested.intersection(one.results) for one in reads) and not any(
            self.flow.computed_from(one.operands) & carried for one in reads
        )

    @cached_property
    def weights(self) -> list[int]:
        """Return the work of each block by position: memory, products, loops."""
        weights = [0] * len(self.tree.bodies)
        for body in reversed(self.tree.bodies):  # an owner's block precedes those inside
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

    def _plan(self, node: Node) -> None:
        steps = self.steps[node.body.index]
        if node.name in CONTROL and node.regions:
            steps.append(EvaluationStep(node))
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
        step.run = self._tile(step) or evaluator(step)
        steps.append(step)

    def _tile(self, step: EvaluationStep) -> Evaluator | None:
        if not self.loads:
            return None
        from asmtune.ir.ttir.tiles import tile_evaluator  # numpy, for kernels that data steers

        return tile_evaluator(step, self.tree)


def steering_values(flow: Flow, loads: frozenset[int]) -> set[int]:
    """Return the values that decide which blocks run, and what they are computed from.

    `loads` are results of loads whose addresses and masks are followed; others end the search.
    """

    def operands(node: Node) -> tuple[int, ...] | None:
        if node.regions and node.name in CONTROL:
            return None
        is_read = node.name != "tt.load" or node.results[0] in loads
        crossed = node.name.startswith(_COMPUTED) or (loads and node.name in TILES and is_read)
        return node.operands if crossed else ()

    return flow.follow(control_values(flow.tree), operands)


def _weight(node: Node) -> int:
    if node.name.startswith(_MEMORY):
        return 8
    return 1 if node.results else 0
