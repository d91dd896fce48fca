"""Find the slots of an argument: one place a program, such as a row of partial sums.

An address is a sum of terms: a stride times an index, which a program, a loop or a tile gives.
Configs agree on what an ordinary output holds, since fewer programs write wider tiles. They differ
in a workspace: another number of programs writes slots of the same width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from asmtune.ir.ttir.addresses import AddressReader, AddressSum
from asmtune.ir.ttir.arguments import Parameter
from asmtune.ir.ttir.costs import Placement
from asmtune.ir.ttir.memory import MemoryOperation, mask_of
from asmtune.ir.ttir.partial_sums import SumCheck
from asmtune.ir.ttir.plan import AXES, Flow
from asmtune.ir.ttir.tree import Node


@dataclass(frozen=True, slots=True)
class ProgramStride:
    """One term of an address: how far apart neighbouring programs write.

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
        """Elements from the first program's to those past the last one's."""
        return self.count * self.stride


@dataclass(frozen=True, slots=True)
class AccessStrides:
    """The program strides of one access; `place` tells accesses of an argument apart."""

    argument: str
    place: int
    strides: tuple[ProgramStride, ...]


@dataclass(frozen=True, slots=True)
class WrittenSlots:
    """The program strides at which a config writes an argument.

    Attributes:
        argument: the parameter's name.
        strides: those of all its stores, which agree.
        others: strides of all other terms that take more than one value.
        filled: elements that one program writes without a gap and without a mask; 0 if unknown.
        sums: indices along which the values stored are partial sums.
        scales: constants that these sums are multiplied by.
        bits: of an element, as the kernel sees it.
    """

    argument: str
    strides: tuple[ProgramStride, ...]
    others: tuple[int, ...]
    filled: int
    sums: tuple[str, ...]
    scales: tuple[str, ...]
    bits: int


@dataclass(frozen=True, slots=True)
class ConfigSlots:
    """What the launch of one config writes by program, and the strides of all its accesses.

    `short` are axes of the grid with too few programs to reach a bound that a mask has.
    """

    written: tuple[WrittenSlots, ...] = ()
    accesses: tuple[AccessStrides, ...] = ()
    short: tuple[str, ...] = ()


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
                accesses.append(AccessStrides(argument, place, _program_strides(address)))
        places = {root for one in self._operations if one.kind != "read" for root in one.roots}
        written = filter(None, map(self._written, sorted(places)))
        return ConfigSlots(tuple(written), tuple(accesses), self._short())

    def _short(self) -> tuple[str, ...]:
        """Return the axes whose programs all end before the bound that a mask compares with."""
        axes = set()
        masks = (mask_of(one.node) for one in self._operations)
        for node in self._comparisons([mask for mask in masks if mask is not None]):
            offset, bound = map(self._reader.of, node.operands)
            if offset is None or bound is None or bound.terms:
                continue
            counts = [index.count for index, _ in offset.terms]
            if None not in counts and offset.greatest + 1 < bound.known:
                axes |= {one.index[0] for one in _program_strides(offset)}
        return tuple(sorted(axes))

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
        if any(one.node.name not in _STORES for one in own) or None in addresses:
            return None
        known = [address for address in addresses if address is not None]
        agreed = _program_strides(known[0])
        # Stores of one argument may differ in the loops around them.
        bare = {tuple(replace(s, trips=1) for s in _program_strides(one)) for one in known}
        if len(bare) != 1:
            return None
        terms = {(i.kind, stride) for a in known for i, stride in a.terms if i.count != 1}
        sums = SumCheck(self._flow, place, self._operations)
        scales = sums.scales(own)
        along = [s.index for s in agreed if sums.along(own, AXES[s.index[0]])]
        return WrittenSlots(
            self._parameters[place].name,
            agreed,
            tuple(sorted(abs(stride) for kind, stride in terms if kind != "program")),
            min(_filled(a, one) for a, one in zip(known, own, strict=True)),
            tuple(along),
            scales,
            self._flow.tree.type_of(own[0].node.operands[0]).bits,
        )


def _program_strides(address: AddressSum) -> tuple[ProgramStride, ...]:
    """Return the terms of programs, in the order of their names."""
    strides = []
    for index, stride in address.terms:
        if index.kind == "program" and index.count is not None:
            trips = _trips_onward(address, index.count * abs(stride))
            strides.append(ProgramStride(index.name, index.count, abs(stride), trips))
    return tuple(sorted(strides, key=lambda one: one.index))


def _trips_onward(address: AddressSum, width: int) -> int:
    """Return the trips of a loop whose steps are as wide as all programs together."""
    trips = [i.count or 0 for i, step in address.terms if i.kind == "loop" and abs(step) == width]
    return max(trips, default=1)


def _filled(address: AddressSum, operation: MemoryOperation) -> int:
    """Return the elements that one program writes without a gap; 0 if a mask leaves some out."""
    if operation.masked or operation.node.name != "tt.store":
        return 0
    inner = sorted((abs(stride), i.count or 0) for i, stride in address.terms if i.kind == "tile")
    width = 1
    for stride, count in inner:
        width = width * count if stride == width else 0
    return width
