"""Addresses as sums: strides times indices that programs, loops and tiles give."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from asmtune.ir.ttir.arguments import Parameter
from asmtune.ir.ttir.mlir_types import AXIS, DENSE, ORDER
from asmtune.ir.ttir.plan import AXES, Flow, terminator
from asmtune.ir.ttir.scalars import EvaluationStep, apply, constant
from asmtune.ir.ttir.tree import Body, Node


@dataclass(frozen=True, slots=True)
class Index:
    """An index: of programs ("program"), a tile's axis, a loop's trip, or "opaque"."""

    kind: str
    name: str
    count: int | None = None


@dataclass(frozen=True)
class AddressSum:
    """A sum: a number, strides of indices, and the argument that a pointer starts from."""

    known: int = 0
    terms: tuple[tuple[Index, int], ...] = ()
    base: int | None = None

    def plus(self, other: AddressSum, factor: int = 1) -> AddressSum:
        """Add a multiple of another sum."""
        terms = dict(self.terms)
        for index, stride in other.terms:
            terms[index] = terms.get(index, 0) + factor * stride
        base = self.base if other.base is None else other.base
        left = tuple((index, stride) for index, stride in terms.items() if stride)
        return AddressSum(self.known + factor * other.known, left, base)

    def times(self, factor: int) -> AddressSum:
        """Multiply by a number."""
        return AddressSum().plus(self, factor)

    @property
    def greatest(self) -> int:
        """Return the greatest value, of indices whose counts are known."""
        return self.known + sum(max(0, s) * ((index.count or 1) - 1) for index, s in self.terms)

    @property
    def has_tile(self) -> bool:
        """Return whether elements of a tile differ."""
        return any(index.kind == "tile" for index, _ in self.terms)


_RANGE: Final = re.compile(r"(end|start) = (\d+)").findall
_PASSING: Final = frozenset(
    {
        "tt.splat", "tt.unsplat", "tt.broadcast", "arith.extsi", "arith.extui", "arith.trunci",
        "arith.index_cast", "arith.index_castui", "arith.bitcast",
    }
)  # fmt: skip
_MADE: Final = frozenset({"tt.make_tensor_ptr", "tt.make_tensor_descriptor"})
_BLOCKS: Final = _MADE | {"tt.advance"}
_DIVIDING: Final = frozenset({"arith.divsi", "arith.divui", "arith.remsi", "arith.remui"})
_DEPTH: Final = 200


class AddressReader:
    """Reads integers and pointers of one launch of a kernel as sums.

    Args:
        flow: the kernel.
        parameters: its arguments.
        grid: programs along three axes.
    """

    def __init__(
        self, flow: Flow, parameters: Sequence[Parameter], grid: tuple[int, int, int]
    ) -> None:
        self._flow = flow
        self._tree = flow.tree
        self._parameters = parameters
        self._grid = grid
        self._known: dict[int, AddressSum | None] = {}
        self._steps: dict[int, AddressSum | None] = {}
        self._depth = 0

    def of(self, value: int) -> AddressSum | None:
        """Return a value as a sum of a start and strides; None if it is not understood."""
        return self.resolved(self.value(value))

    def access(self, node: Node) -> AddressSum | None:
        """Return what an operation reads or writes, tiles of descriptors included."""
        pointer, *others = node.operands
        rank = len(self._tree.type_of(pointer).shape)
        if self._tree.type_of(pointer).role != "descriptor":
            return self.of(pointer)
        if node.name.endswith(("gather", "scatter")):
            return None
        moved = self._moved_by(self.value(pointer), others[:rank], self._strides_of(pointer))
        return self.resolved(self._tiled(moved, pointer, self._strides_of(pointer)))

    def value(self, value: int) -> AddressSum | None:
        """Return an integer or a pointer as a sum; None if it is not understood."""
        if value in self._known or self._depth > _DEPTH:
            return self._known.get(value)
        self._known[value] = None
        self._depth += 1
        owner, place = self._tree.sources[value]
        if isinstance(owner, Body):
            address = self._argument(owner, place, value)
        elif owner.regions:
            address = self._result(owner, place, value)
        else:
            address = self._computed(owner, value)
        self._depth -= 1
        self._known[value] = address
        return address

    def _argument(self, body: Body, place: int, value: int) -> AddressSum | None:
        if body is self._tree.blocks[0]:
            parameter = self._parameters[place]
            if parameter.is_memory:
                return AddressSum(base=place)
            number = parameter.value
            return AddressSum(number) if isinstance(number, int) else self._opaque(value)
        loop = body.owner
        if loop is not None and loop.name == "scf.for" and body is loop.regions[0][0]:
            if place:
                last = terminator(body)
                if last is not None and last.operands[place - 1] == value:  # the same in each trip
                    return self.value(loop.operands[2 + place])
                return AddressSum(terms=((Index("carried", str(value)), 1),))
            low, step = (self.resolved(self.value(one)) for one in loop.operands[0:3:2])
            if low is None or step is None or step.terms:
                return None
            return low.plus(AddressSum(terms=((self._trip(loop), 1),)), step.known)
        origins = self._flow.origins(value)
        return self.value(origins[0]) if len(origins) == 1 else None

    def _trip(self, loop: Node) -> Index:
        return Index("loop", str(loop.loop), self.trips(loop))

    def trips(self, loop: Node) -> int | None:
        """Return the trips of a loop in its first program; None if they are not known."""
        low, high, step = (self.resolved(self.value(one)) for one in loop.operands[:3])
        if low is None or high is None or step is None or high.terms or step.terms:
            return None
        if any(index.kind != "program" for index, _ in low.terms) or step.known <= 0:
            return None
        return max(0, -((low.known - high.known) // step.known))

    def _result(self, node: Node, place: int, value: int) -> AddressSum | None:
        if node.name == "scf.for":
            init, argument = node.operands[3 + place], node.regions[0][0].arguments[1 + place]
            start, step = self.value(init), self._step(argument, node, place)
            if start is None or step is None:
                return None
            trips = self.trips(node)
            if trips is not None:
                return start.plus(step, trips)
            after = Index("loop", f"after {node.loop}")
            return start.plus(AddressSum(terms=((after, 1),)), step.known)
        origins = self._flow.origins(value)
        sides = [self.value(one) for one in origins] if node.name != "scf.while" else []
        if sides and all(side == sides[0] for side in sides):
            return sides[0]
        return self._opaque(value)

    def _step(self, argument: int, loop: Node, place: int) -> AddressSum | None:
        """Return the number that each trip adds to a carried value; None if it is not constant."""
        if argument not in self._steps:
            self._steps[argument] = None
            last = terminator(loop.regions[0][0])
            after = self.value(last.operands[place]) if last is not None else None
            carried = self.value(argument)
            if after is not None and carried is not None:
                difference = after.plus(carried, -1)
                self._steps[argument] = None if difference.terms else replace(difference, base=None)
        return self._steps[argument]

    def resolved(self, address: AddressSum | None) -> AddressSum | None:
        """Write values that loops carry as their start and a stride a trip."""
        while address is not None:
            carried = next((i for i, _ in address.terms if i.kind == "carried"), None)
            if carried is None:
                return address
            value = int(carried.name)
            body, place = self._tree.sources[value]
            loop = body.owner if isinstance(body, Body) else None
            assert loop is not None, "only a loop's block carries values"
            start = self.value(loop.operands[2 + place])
            step = self._step(value, loop, place - 1)
            if start is None or step is None:
                return None
            factor = dict(address.terms)[carried]
            start = start.plus(AddressSum(terms=((self._trip(loop), 1),)), step.known)
            own = AddressSum(terms=((carried, 1),))
            address = address.plus(own, -factor).plus(start, factor)
        return None

    def _computed(self, node: Node, value: int) -> AddressSum | None:
        name, text = node.name, node.text
        if name == "arith.constant":
            dense = DENSE(text)
            number = constant(f"{dense[1]} : {dense[2]}" if dense else text)
            return AddressSum(number) if isinstance(number, int) else self._opaque(value)
        if name in ("tt.get_program_id", "tt.get_num_programs"):
            axis = AXES.get(text[:1], 0)
            if name == "tt.get_num_programs":
                return AddressSum(self._grid[axis])
            return AddressSum(terms=((Index("program", "xyz"[axis], self._grid[axis]), 1),))
        if name == "tt.make_range":
            ends = {key: int(number) for key, number in _RANGE(text)}
            tile = Index("tile", "0", ends["end"] - ends["start"])
            return AddressSum(ends["start"], ((tile, 1),))
        if name in _BLOCKS:
            return self._block(node, value)
        operands = [self.value(one) for one in node.operands[:2]]
        first = operands[0] if operands else None
        if name in _PASSING:
            return first
        if name in ("tt.expand_dims", "tt.trans"):
            return None if first is None else _moved(first, node)
        if (folded := self._folded(node, value)) is not None:
            return AddressSum(folded)
        if len(operands) != 2 or None in operands:
            return self._opaque(value)
        return self._pair(node, value, *operands)  # type: ignore[arg-type]

    def _folded(self, node: Node, value: int) -> int | None:
        """Return what a scalar operation gives on numbers that are all known; None otherwise."""
        known = [self.value(one) for one in node.operands]
        numbers = [one.known for one in known if one is not None and one == AddressSum(one.known)]
        if not numbers or len(numbers) < len(known):
            return None
        step = EvaluationStep(node, self._tree.type_of(value), self._tree.type_of(node.operands[0]))
        number = apply(step, list(numbers))
        return number if isinstance(number, int) else None

    def _block(self, node: Node, value: int) -> AddressSum | None:
        """Return a block pointer that is made or moved, or where a descriptor starts."""
        start = self.value(node.operands[0])
        strides = self._strides_of(value)
        if node.name == "tt.advance":
            return self._moved_by(start, node.operands[1:], strides)
        if node.name != "tt.make_tensor_ptr":
            return start
        offsets = node.operands[1 + 2 * (len(node.operands) // 3) :]
        return self._tiled(self._moved_by(start, offsets, strides), value, strides)

    def _strides_of(self, value: int) -> list[int]:
        """Return the strides of a block pointer or descriptor; none if they are not known."""
        rank = len(self._tree.type_of(value).shape)
        for reached in self._flow.follow([value], lambda n: None if n.regions else n.operands[:1]):
            owner, place = self._tree.sources[reached]
            if isinstance(owner, Node) and owner.name in _MADE:
                strides = [self.of(one) for one in owner.operands[1 + rank : 1 + 2 * rank]]
                return [one.known for one in strides if one is not None and not one.terms]
            if owner is self._tree.blocks[0] and self._tree.type_of(reached).role == "descriptor":
                values = [one.value for one in self._parameters[place + 1 + rank :][:rank]]
                return [one for one in values if isinstance(one, int)]
        return []

    def _moved_by(
        self, start: AddressSum | None, offsets: Sequence[int], strides: Sequence[int]
    ) -> AddressSum | None:
        """Add offsets along the axes of a block."""
        parts = [self.value(one) for one in offsets]
        if start is None or None in parts or len(parts) != len(strides):
            return None
        for part, stride in zip(parts, strides, strict=True):
            start = start.plus(part or AddressSum(), stride)
        return start

    def _tiled(
        self, start: AddressSum | None, value: int, strides: Sequence[int]
    ) -> AddressSum | None:
        """Add the elements of a block."""
        sizes = self._tree.type_of(value).shape
        tiles = [Index("tile", str(axis), size) for axis, size in enumerate(sizes)]
        terms = tuple(zip(tiles, strides, strict=False))
        return None if start is None else start.plus(AddressSum(terms=terms))

    def _pair(
        self, node: Node, value: int, first: AddressSum, second: AddressSum
    ) -> AddressSum | None:
        name = node.name.removeprefix("arith.")
        if node.name == "tt.addptr" or name in ("addi", "subi"):
            return first.plus(second, -1 if name == "subi" else 1)
        if name == "muli" and (not first.terms or not second.terms):
            return second.times(first.known) if not first.terms else first.times(second.known)
        if name == "shli" and not second.terms and 0 <= second.known < 63:
            return first.times(1 << second.known)
        if node.name in _DIVIDING and not second.terms and second.known > 0:
            whole = self.resolved(first)
            if whole is not None:
                return _divided(name[:3], whole, second.known) or self._opaque(value)
        return self._opaque(value)

    def _opaque(self, value: int) -> AddressSum | None:
        """Return an index of which nothing is known; None for a pointer."""
        if self._tree.type_of(value).addresses:
            return None
        return AddressSum(terms=((Index("opaque", str(value)), 1),))


def _divided(name: str, number: AddressSum, by: int) -> AddressSum | None:
    """Return a quotient ("div") or remainder ("rem") of a sum by a number."""
    if len(number.terms) == 1 and not number.known:
        ((index, stride),) = number.terms
        if stride == 1 and index.kind == "program" and index.count is not None:
            return _divided_index(name, index, by)
    if all(stride % by == 0 for _, stride in number.terms):
        if name == "rem":
            return AddressSum(number.known % by)
        strides = tuple((index, stride // by) for index, stride in number.terms)
        return AddressSum(number.known // by, strides)
    if number.has_tile:
        return number if name == "rem" else None  # wrapped, as in `% M`: the tile stays a tile
    return None


def _divided_index(name: str, index: Index, by: int) -> AddressSum:
    """Return the index that a division makes of programs; the same name whatever the number."""
    count = index.count or 1
    if name == "div":
        return AddressSum(terms=((Index("program", f"{index.name}//", (count - 1) // by + 1), 1),))
    return AddressSum(terms=((Index("program", f"{index.name}%", min(by, count)), 1),))


def _moved(address: AddressSum, node: Node) -> AddressSum | None:
    """Return a tile with another axis, or with its axes in another order."""
    axis, order = AXIS(node.text), ORDER(node.text)

    def place(old: int) -> int:
        if node.name == "tt.expand_dims" and axis:
            return old + (old >= int(axis[1]))
        return [int(one) for one in order[1].split(",")].index(old) if order else old

    terms = (
        (replace(i, name=str(place(int(i.name)))) if i.kind == "tile" else i, stride)
        for i, stride in address.terms
    )
    return replace(address, terms=tuple(terms))
