"""Find the slots of an argument: one place a program, such as a row of partial sums.

An address is a sum of terms: a stride times an index, which a program, a loop or a tile gives.
Configs agree on what an ordinary output holds, since fewer programs write wider tiles. They differ
in a workspace: another number of programs writes slots of the same width.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from asmtune.ir.ttir.addresses import AddressReader, AddressSum
from asmtune.ir.ttir.arguments import Parameter
from asmtune.ir.ttir.costs import Placement
from asmtune.ir.ttir.memory import MemoryOperation, mask_of
from asmtune.ir.ttir.mlir_types import AXIS, DENSE
from asmtune.ir.ttir.plan import AXES, Flow, terminator
from asmtune.ir.ttir.tree import Body, Node


@dataclass(frozen=True, slots=True)
class ProgramStride:
    """A term of an address: how far apart neighbouring programs write.

    Attributes:
        index: name of the index: "x" for the first axis of the grid, "x//" or "x%" for an index
            that is divided out of it.
        count: how many values the index takes.
        stride: elements between neighbours.
        trips: of a loop that walks on in steps of all programs, or over an axis of that stride;
            1 without such a loop, 0 if its trips are not known.
    """

    index: str
    count: int
    stride: int
    trips: int = 1

    @property
    def width(self) -> int:
        """Return the elements from the first program's to those past the last one's."""
        return self.count * self.stride


@dataclass(frozen=True, slots=True)
class AccessStrides:
    """The program strides of one access; `place` tells accesses of an argument apart.

    It `has_gap` if elements between those of neighbouring programs are left out.
    """

    argument: str
    place: int
    strides: tuple[ProgramStride, ...]
    has_gap: bool = False


@dataclass(frozen=True, slots=True)
class WrittenSlots:
    """The program strides at which a config writes an argument.

    Attributes:
        argument: the parameter's name.
        strides: those of all its stores, which agree.
        others: strides of all other terms that take more than one value.
        partial: indices along which the values stored are partial sums.
        scales: constants that partial sums are multiplied by.
        bits: of an element, as the kernel sees it.
    """

    argument: str
    strides: tuple[ProgramStride, ...]
    others: tuple[int, ...]
    partial: tuple[str, ...]
    scales: tuple[str, ...]
    bits: int


@dataclass(frozen=True, slots=True)
class ConfigSlots:
    """Writes of one config's launch by program, and the strides of all its accesses.

    `short` are axes of the grid with too few programs to reach a bound that a mask or a loop has;
    on those that are `reached` the programs are seen to be enough.
    """

    written: tuple[WrittenSlots, ...] = ()
    accesses: tuple[AccessStrides, ...] = ()
    short: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()


_STORES: Final = frozenset({"tt.store", "tt.descriptor_store", "tt.atomic_rmw"})


class SlotFinder:
    """Reads the addresses of one launch of a kernel.

    Args:
        flow, operations, placement: the kernel.
        parameters: its arguments.
        grid: programs along three axes.
    """

    def __init__(
        self,
        flow: Flow,
        operations: Sequence[MemoryOperation],
        placement: Placement,
        parameters: Sequence[Parameter],
        grid: tuple[int, int, int],
    ) -> None:
        self._flow = flow
        self._operations = [one for one in operations if placement.is_live(one.node)]
        self._parameters = parameters
        self._reader = AddressReader(flow, parameters, grid)

    def slots(self) -> ConfigSlots:
        """Return the slots of all arguments whose addresses are understood."""
        accesses = []
        for place, operation in enumerate(self._operations):
            address = self._address_of(operation)
            if address is not None:
                argument = self._parameters[operation.roots[0]].name
                strides = _program_strides(address)
                accesses.append(AccessStrides(argument, place, strides, _has_gap(address)))
        places = {root for one in self._operations if one.kind != "read" for root in one.roots}
        written = filter(None, map(self._written, sorted(places)))
        return ConfigSlots(tuple(written), tuple(accesses), *self._ends())

    def _ends(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the axes with a bound that no program reaches, and those with all reached."""
        short, reached = set[str](), set[str]()
        for end, bound, is_last in self._bounds():
            if end is None or bound is None or bound.terms:
                continue
            if any(i.count is None or (i.kind == "program" and s < 0) for i, s in end.terms):
                continue
            axes = {one.index[0] for one in _program_strides(end)}
            if end.greatest >= bound.known:
                reached |= axes
            elif is_last:
                short |= axes
        return tuple(sorted(short)), tuple(sorted(reached - short))

    def _bounds(self) -> Iterator[tuple[AddressSum | None, AddressSum | None, bool]]:
        """Yield the ends of what programs cover, bounds that these have, and whether none is past.

        A block pointer may be moved on, past the end that it was made with.
        """
        of, one_more = self._reader.of, AddressSum(1)
        masks = (mask_of(one.node) for one in self._operations)
        for node in self._comparisons([mask for mask in masks if mask is not None]):
            last, bound = map(of, node.operands)
            yield last and last.plus(one_more), bound, True
        for node in self._flow.tree.nodes():
            if node.name in ("arith.minsi", "arith.minui"):
                first, second = map(of, node.operands)
                yield first, second, True
                yield second, first, True
            elif node.name == "tt.make_tensor_ptr":
                sizes = self._flow.tree.type_of(node.results[0]).shape
                shapes = node.operands[1 : 1 + len(sizes)]
                offsets = node.operands[1 + 2 * len(sizes) :]
                for size, shape, offset in zip(sizes, shapes, offsets, strict=True):
                    start = of(offset)
                    yield start and start.plus(AddressSum(size)), of(shape), False

    def _comparisons(self, masks: list[int]) -> list[Node]:
        """Return the comparisons "below" that masks are made of."""
        reached = self._flow.follow(
            masks, lambda node: () if node.name.startswith(("arith.cmp", "tt.load")) else None
        )
        owners = (self._flow.tree.sources[value][0] for value in reached)
        return [
            one
            for one in owners
            if isinstance(one, Node) and one.name == "arith.cmpi" and one.text[1:3] == "lt"
        ]

    def _address_of(self, operation: MemoryOperation) -> AddressSum | None:
        if len(operation.roots) != 1 or operation.foreign or not operation.node.operands:
            return None
        address = self._reader.access(operation.node)
        return address if address is not None and address.base == operation.roots[0] else None

    def _written(self, place: int) -> WrittenSlots | None:
        """Return the slots of an argument; None if one of its stores is not understood."""
        own = [one for one in self._operations if one.kind != "read" and place in one.roots]
        addresses = [self._address_of(one) for one in own]
        known = [address for address in addresses if address is not None]
        if any(one.node.name not in _STORES for one in own) or len(known) != len(own):
            return None
        reads = any(one.node.name == "tt.load" and place in one.roots for one in self._operations)
        if not reads and any(map(self._overwrites, own, known)):
            return None
        agreed = _program_strides(known[0])
        # Stores of one argument may differ in the loops around them.
        bare = {tuple(replace(s, trips=1) for s in _program_strides(one)) for one in known}
        if len(bare) != 1:
            return None
        terms = {(i.kind, stride) for a in known for i, stride in a.terms if i.count != 1}
        check = PartialCheck(self._flow, place, self._operations)
        along = tuple(s.index for s in agreed if check.along(own, AXES[s.index[0]]))
        return WrittenSlots(
            self._parameters[place].name,
            agreed,
            tuple(sorted(abs(stride) for kind, stride in terms if kind != "program")),
            along,
            check.scales(own),
            self._flow.tree.type_of(own[0].node.operands[0]).bits,
        )

    def _overwrites(self, operation: MemoryOperation, address: AddressSum) -> bool:
        """Return whether the trips of a loop store to one place, where only the last one's stay."""
        is_opaque = any(index.kind == "opaque" for index, _ in address.terms)
        if is_opaque or operation.node.name == "tt.atomic_rmw":
            return False
        walked = {index.name for index, _ in address.terms if index.kind == "loop"}
        loops = (self._flow.tree.loops[place] for place in operation.node.body.loops())
        others = [one for one in loops if one.name == "scf.for" and str(one.loop) not in walked]
        return any(self._reader.trips(loop) != 1 for loop in others)


def _program_strides(address: AddressSum) -> tuple[ProgramStride, ...]:
    """Return the terms of programs, in the order of their names."""
    strides = []
    for index, stride in address.terms:
        if index.kind == "program" and index.count is not None:
            trips = _trips_onward(address, index.count * abs(stride))
            strides.append(ProgramStride(index.name, index.count, abs(stride), trips))
    return tuple(sorted(strides, key=lambda one: one.index))


def _has_gap(address: AddressSum) -> bool:
    """Return whether tiles and loops are known to end before the next program's begin."""
    apart = min((abs(s) for i, s in address.terms if i.kind == "program"), default=1)
    inner = [(i, s) for i, s in address.terms if i.kind != "program" and 0 <= s < apart]
    known = all(index.count is not None for index, _ in inner)
    return known and AddressSum(terms=tuple(inner)).greatest + 1 < apart


def _trips_onward(address: AddressSum, width: int) -> int:
    """Return the trips of a loop whose steps are as wide as all programs together."""
    trips = [i.count or 0 for i, step in address.terms if i.kind == "loop" and abs(step) == width]
    return max(trips, default=1)


_ADDING: Final = frozenset({"arith.addf", "arith.addi"})
_SCALING: Final = frozenset({"arith.mulf", "arith.muli"})
_PASSING: Final = frozenset(
    {
        "tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans",
        "arith.extf", "arith.truncf", "arith.extsi", "arith.sitofp", "tt.fp_to_fp",
    }
)  # fmt: skip
_ZERO: Final = re.compile(r"-?0(\.0*(e[+-]?\d+)?)?(?= :|$)|0x0+(?= :|$)").match


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
            return any(kind in f" {node.text[:24]}" for kind in (" fadd,", " add,"))
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
        if owner.name == "arith.divf":
            return self._scaled(*owner.operands)
        parts = self._parts(owner, value)
        return self._is_sum(owner) if parts is None else all(map(self._sums, parts))

    def _parts(self, node: Node, value: int) -> Sequence[int] | None:
        """Return the values that must be sums for a result to be one; None of other operations."""
        if node.name in (*_ADDING, "arith.subf", "arith.subi"):
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
