"""Origins of values: back through operations, loops, branches and calls to arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from asmtune.ir.ttir.tree import Body, Node, Tree

CONTROL: Final = frozenset({"scf.for", "scf.if", "scf.while", "tt.call"})
_RETURNS: Final = frozenset({"tt.return", "scf.yield", "scf.condition"})


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
        return self._made(owner, place)

    def computed_from(self, values: Iterable[int]) -> set[int]:
        """Return all values that these are computed from, themselves included."""
        reached: set[int] = set()
        pending = list(values)
        while pending:
            value = pending.pop()
            if value not in reached:
                reached.add(value)
                pending += self.origins(value)
        return reached

    def follow(
        self, values: Iterable[int], step: Callable[[Node], Iterable[int] | None]
    ) -> set[int]:
        """Return the values reached from some, where `step` says how to cross an operation.

        Args:
            values: where to start.
            step: the operands to go on with; None for the usual ones of a control operation.
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

    def _made(self, node: Node, place: int) -> list[int]:
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
        if owner.name == "tt.call":
            return _pick(owner.operands, place)
        return list(owner.operands)  # a combining region sees elements of the operands


def terminator(body: Body) -> Node | None:
    """Return the operation that ends a block and hands values on; None if it is left out."""
    last = body.nodes[-1] if body.nodes else None
    return last if last is not None and last.name in _RETURNS else None


def _yielded(region: list[Body], place: int) -> list[int]:
    yielded: list[int] = []
    for body in region:
        last = terminator(body)
        if last is not None:
            yielded += _pick(last.operands, place)
    return yielded


def _pick(values: tuple[int, ...], place: int) -> list[int]:
    return [values[place]] if place < len(values) else []


def control_values(tree: Tree) -> list[int]:
    """Return the values that decide which blocks run, and how often."""
    values: list[int] = []
    for body in tree.bodies:
        for node in body.nodes:
            if node.name == "scf.for":
                values += node.operands[:3]
            elif node.name in ("scf.if", "scf.condition", "cf.cond_br", "cf.switch"):
                values += node.operands[:1]
    return values
