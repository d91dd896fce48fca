"""Tell whether the values that a kernel stores are partial sums over the programs of an axis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from asmtune.ir.ttir.memory import MemoryOperation
from asmtune.ir.ttir.mlir_types import AXIS, DENSE
from asmtune.ir.ttir.plan import AXES, Flow, terminator
from asmtune.ir.ttir.tree import Body, Node

_ADDING: Final = frozenset({"arith.addf", "arith.addi"})
_SUBTRACTING: Final = frozenset({"arith.subf", "arith.subi"})
_SCALING: Final = frozenset({"arith.mulf", "arith.muli"})
_DIVIDING: Final = frozenset({"arith.divf"})
_PASSING: Final = frozenset(
    {
        "tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans",
        "arith.extf", "arith.truncf", "arith.extsi", "arith.sitofp", "tt.fp_to_fp",
    }
)  # fmt: skip
_ZERO: Final = re.compile(r"-?0(\.0*(e[+-]?\d+)?)?(?= :|$)|0x0+(?= :|$)").match
_ATOMIC_ADDS: Final = (" fadd,", " add,")


class PartialCheck:
    """Follows what is stored to one argument back to sums over a tile, a loop or a product.

    Args:
        flow, operations: the kernel and its accesses.
        argument: the position of the argument that holds the sums.
    """

    def __init__(self, flow: Flow, argument: int, operations: Sequence[MemoryOperation]) -> None:
        self._flow = flow
        # A sum of what the slot holds and more is a sum, as under a lock.
        self._own = {
            one.node.results[0]
            for one in operations
            if one.node.name == "tt.load" and one.roots == (argument,)
        }
        self._factors: set[int] = set()
        self._assumed: set[int] = set()

    def along(self, stores: Sequence[MemoryOperation], axis: int) -> bool:
        """Return whether all stores hold partial sums, scaled alike by all programs of an axis."""
        self._factors.clear()
        if not all(self._adds(one) for one in stores):
            return False
        return not any(self._differs(factor, axis) for factor in self._factors)

    def scales(self, stores: Sequence[MemoryOperation]) -> tuple[str, ...]:
        """Return the constants that the sums are multiplied or divided by."""
        self._factors.clear()
        if not all(self._adds(one) for one in stores):
            return ()
        reached = self._flow.follow(self._factors, lambda node: () if _ends(node) else None)
        owners = (self._flow.tree.sources[value][0] for value in reached)
        texts = {o.text for o in owners if isinstance(o, Node) and o.name == "arith.constant"}
        return tuple(sorted(texts))

    def _adds(self, operation: MemoryOperation) -> bool:
        node = operation.node
        if node.name == "tt.atomic_rmw":
            return any(kind in f" {node.text[:24]}" for kind in _ATOMIC_ADDS)
        self._assumed = set()
        return self._sums(node.operands[1 if node.name == "tt.store" else -1])

    def _sums(self, value: int) -> bool:
        """Return whether a value is a sum over some of the program's elements, or 0."""
        if value in self._assumed or value in self._own:
            return True
        self._assumed.add(value)
        owner, place = self._flow.tree.sources[value]
        if isinstance(owner, Body):
            return self._carried(owner, place, value)
        if owner.name == "scf.for":
            body = owner.regions[0][0]
            return self._carried(body, 1 + place, body.arguments[1 + place])
        if owner.name in _SCALING:
            return self._scaled(*owner.operands) or self._scaled(*reversed(owner.operands))
        if owner.name in _DIVIDING:
            return self._scaled(*owner.operands)
        parts = self._parts(owner, value)
        return self._is_sum(owner) if parts is None else all(map(self._sums, parts))

    def _parts(self, node: Node, value: int) -> Sequence[int] | None:
        """Return the values that must be sums for a result to be one; None of other operations."""
        if node.name in _ADDING or node.name in _SUBTRACTING:
            return node.operands
        if node.name in _PASSING or node.name == "arith.negf":
            return node.operands[:1]
        if node.name == "arith.select":
            return node.operands[1:]
        if node.name == "tt.dot":
            return node.operands[2:3]
        return self._flow.origins(value) if node.name == "scf.if" else None

    def _carried(self, body: Body, place: int, value: int) -> bool:
        """Return whether a loop adds up a value from a sum or 0, whatever it adds."""
        loop = body.owner
        if loop is None or loop.name != "scf.for" or not place:
            return False
        self._assumed.add(value)
        last = terminator(body)
        after = last.operands[place - 1] if last is not None else -1
        if after < 0 or not self._sums(loop.operands[2 + place]):
            return False
        owner = self._flow.tree.sources[after][0]
        if isinstance(owner, Node) and owner.name in _ADDING and value in owner.operands:
            return True
        return self._sums(after)

    def _scaled(self, value: int, factor: int) -> bool:
        before = set(self._assumed)
        if self._sums(value):
            self._factors.add(factor)
            return True
        self._assumed = before
        return False

    def _is_sum(self, node: Node) -> bool:
        """Return whether an operation adds up a tile, or is 0."""
        if node.name == "arith.constant":
            return _is_zero(node)
        if node.name != "tt.reduce" or len(node.results) != 1:
            return False
        names = [inner.name for inner in node.regions[0][0].nodes[:-1]]
        return len(names) == 1 and names[0] in _ADDING and not self._folds_twice(node)

    def _folds_twice(self, node: Node) -> bool:
        """Return whether what is summed depends on all of the tile, as squares around its mean."""
        tree = self._flow.tree

        def kind(one: Node) -> tuple[object, ...]:
            shape = tree.type_of(one.operands[0]).shape
            found = AXIS(one.text)
            return one.body, shape, found and found[1]

        reached = self._flow.computed_from(node.operands)
        owners = (tree.sources[one][0] for one in reached)
        folds = (one for one in owners if isinstance(one, Node) and one.name == node.name)
        return any(kind(one) == kind(node) for one in folds)

    def _differs(self, value: int, axis: int) -> bool:
        """Return whether a value depends on the programs of an axis."""
        owners = (self._flow.tree.sources[one][0] for one in self._flow.computed_from([value]))
        return any(
            isinstance(owner, Node)
            and owner.name == "tt.get_program_id"
            and AXES.get(owner.text[:1], 0) == axis
            for owner in owners
        )


def _ends(node: Node) -> bool:
    """Return whether constants before a node are of addresses, not of the scale."""
    return node.name in ("tt.load", "tt.reduce", "tt.dot") or node.name.startswith("tt.atomic")


def _is_zero(node: Node) -> bool:
    dense = DENSE(node.text)
    return bool(_ZERO((dense[1] if dense else node.text).strip()))
