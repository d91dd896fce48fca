"""Find the furthest byte that an access reaches behind an argument, where the text tells it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from asmtune.ir.ttir.addresses import AddressReader, AddressSum, Index
from asmtune.ir.ttir.memory import MASKED, MemoryOperation, mask_of
from asmtune.ir.ttir.plan import Flow
from asmtune.ir.ttir.tree import Body, Node

_PASSING: Final = frozenset(
    {"arith.andi", "tt.splat", "tt.broadcast", "tt.expand_dims", "arith.extsi",
     "ttg.convert_layout", "gluon.set_auto_layout"}
)  # fmt: skip
_WRAPPING: Final = frozenset({"arith.remsi", "arith.remui"})

Limits = dict[tuple[tuple[Index, int], ...], int]
"""Greatest values of sums that a mask allows, by their terms."""


class Extents:
    """Finds ends of accesses by their addresses as sums.

    Terms of a sum count as independent, so that only what differs by programs, tile axes and loops
    adds up.
    """

    def __init__(self, flow: Flow, reader: AddressReader, grid: tuple[int, int, int]) -> None:
        self._flow = flow
        self._reader = reader
        self._grid = grid

    def end(self, operation: MemoryOperation) -> int | None:
        """Return the bytes from an argument's start to the end of what an operation reaches.

        None where a mask sets other than upper limits, or an index is not known.
        """
        node, mask = operation.node, mask_of(operation.node)
        if node.name not in MASKED or len(operation.roots) != 1 or not self._always_runs(node.body):
            return None
        limits = {} if mask is None else self._limits(mask)
        address = self._reader.of(node.operands[0])
        if limits is None or address is None or self._wraps(node.operands[0]):
            return None
        if any(
            self._parts(address, axis) > size for axis, size in zip("xyz", self._grid, strict=True)
        ):
            return None
        furthest = self._furthest(address, limits)
        return None if furthest is None else max(0, furthest + 1) * operation.element_bytes

    def _always_runs(self, body: Body) -> bool:
        """Return whether the first program comes to a block, through loops alone."""
        owner = body.owner
        if owner is None:
            return body is self._flow.tree.blocks[0]
        is_loop = owner.name == "scf.for" and bool(self._reader.trips(owner))
        return is_loop and self._always_runs(owner.body)

    def _wraps(self, pointer: int) -> bool:
        """Return whether a tile's offsets are wrapped, which sums do not show."""
        tree = self._flow.tree
        reached = self._flow.computed_from([pointer])
        tiles = (tree.sources[value][0] for value in reached if tree.type_of(value).is_tensor)
        return any(isinstance(one, Node) and one.name in _WRAPPING for one in tiles)

    def _parts(self, address: AddressSum, axis: str) -> int:
        """Return the combinations of the indices that a program's index is divided into."""
        programs = (index for index, _ in address.terms if index.kind == "program")
        return math.prod(index.count or 0 for index in programs if index.name[0] == axis)

    def _reach(self, terms: Iterable[tuple[Index, int]]) -> int | None:
        """Return the greatest sum of terms; None if the count of one is not known."""
        terms = tuple(terms)
        loops = self._flow.tree.loops
        for index, _ in terms:
            if not index.count:
                return None
            if index.kind == "loop":  # counted for the first program
                low = self._reader.of(loops[int(index.name)].operands[0])
                if low is None or low.terms:
                    return None
        return AddressSum(terms=terms).greatest

    def _furthest(self, address: AddressSum, limits: Limits) -> int | None:
        """Return the greatest value of a sum under limits; None if one of its terms is unknown."""
        left, most = dict(address.terms), address.known
        for terms, limit in limits.items():
            reach = self._reach(terms)
            factors = {left[i] // s if i in left and left[i] % s == 0 else 0 for i, s in terms}
            if len(factors) == 1 and (factor := factors.pop()) > 0:
                most += factor * (limit if reach is None else min(limit, reach))
                left = {index: step for index, step in left.items() if index not in dict(terms)}
            elif reach is None or reach > limit:
                return None  # it limits what is no part of the address, and may still limit this
        rest = self._reach(left.items())
        return None if rest is None else most + rest

    def _limits(self, mask: int) -> Limits | None:
        """Return the limits that a mask sets; None if it is not of upper limits alone."""
        limits: Limits = {}
        masks, seen = [mask], {mask}
        while masks:
            owner, _ = self._flow.tree.sources[masks.pop()]
            if isinstance(owner, Body):
                return None
            if owner.name in _PASSING:
                masks += set(owner.operands) - seen
                seen.update(owner.operands)
                continue
            if owner.name != "arith.cmpi" or not owner.text.startswith("slt"):
                return None
            value, bound = map(self._reader.of, owner.operands)
            if value is None or bound is None or bound.terms:
                return None
            most = bound.known - 1 - value.known
            limits[value.terms] = min(most, limits.get(value.terms, most))
        return limits
