"""Evaluate addresses, loads and integer tiles, where the values behind a pointer are known.

A kernel that data steers loads numbers and goes by them: the ends of its segment, its expert, the
longest of its rows. Only plain pointers to integers are read; all else stays unknown.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from asmtune.ir.ttir.mlir_types import AXIS, DENSE, ORDER, ValueType
from asmtune.ir.ttir.scalars import (
    MOVES,
    TILES,
    EvaluationStep,
    Evaluator,
    Unknown,
    apply,
    constant,
)
from asmtune.ir.ttir.tree import Node, Tree

Integers = NDArray[np.int64]


class IndexTable(Protocol):
    """Elements behind a pointer; `core.index_values.IndexValues` is one."""

    @property
    def bits(self) -> int:
        """Return the bits of an element."""

    @property
    def source(self) -> str:
        """Return where the elements come from, in words."""

    def item(self, offset: int) -> int | None:
        """Return one element; None if it lies outside."""

    def read(self, offsets: Integers) -> Integers | None:
        """Return the elements at some offsets; None if one lies outside."""


@dataclass(frozen=True, slots=True, eq=False)
class Address:
    """A pointer, or a tile of them, into a table.

    `offsets` count elements: Python's integer of a pointer, an array of a tile.
    """

    table: IndexTable
    offsets: Any


def start_of(table: IndexTable) -> Address:
    """Return the address of a table's first element."""
    return Address(table, 0)


_LARGEST: Final = 1 << 16
"""Most elements of a tile that is evaluated."""

_RANGE: Final = re.compile(r"(end|start) = (\d+)").findall


def _toward_zero(a: Integers, b: Integers) -> Integers:
    """Divide as the machine does; lanes that divide by 0, which a mask hides, give 0."""
    size = np.abs(a) // np.where(b == 0, 1, np.abs(b))
    return np.where(b == 0, 0, np.where((a < 0) == (b < 0), size, -size))


_BINARY: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.divsi": _toward_zero,
    "arith.remsi": lambda a, b: a - b * _toward_zero(a, b),
    "arith.shli": lambda a, b: np.left_shift(a, b & 63),
    "arith.shrsi": lambda a, b: np.right_shift(a, b & 63),
}
# Of numbers without a sign: they are given as they are, below 2**63.
_UNSIGNED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "arith.divui": _BINARY["arith.divsi"],
    "arith.remui": _BINARY["arith.remsi"],
    "arith.minui": np.minimum,
    "arith.maxui": np.maximum,
    "arith.shrui": _BINARY["arith.shrsi"],
}
_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_FOLDED: Final[Mapping[str, np.ufunc]] = {
    "arith.addi": np.add,
    "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.muli": np.multiply,
}


def tile_evaluator(step: EvaluationStep, tree: Tree) -> Evaluator | None:
    """Return a function that computes a tile, an address or a load; None for other operations."""
    node, kind = step.node, step.kind
    if kind is None:
        return None
    if not (node.name in TILES or kind.is_tensor or kind.addresses):
        return None
    compute = _computation(node, kind, tree)
    beyond = Unknown("loaded from beyond its tensor", node.operation.line)

    def run(values: list[Any]) -> Any:
        operands = [values[operand] for operand in node.operands]
        unknown = next((value for value in operands if isinstance(value, Unknown)), None)
        if unknown is not None and node.name != "tt.load":
            return unknown
        if unknown is not None or compute is None or kind.elements > _LARGEST:
            return apply(step, operands)
        result = compute(operands)
        if result is None:
            return beyond if node.name == "tt.load" else apply(step, operands)
        return result

    return run


Computation = Callable[[list[Any]], Any]


def _computation(node: Node, kind: ValueType, tree: Tree) -> Computation | None:
    """Return how an operation's result follows from its operands; None if that is not known."""
    name, text = node.name, node.text
    if name == "tt.load":
        return _load(tree.type_of(node.operands[0]), kind)
    if name == "tt.addptr":
        return _moved
    if name == "tt.bitcast" and kind.addresses:
        return lambda operands: operands[0]
    if name in MOVES:
        return _move(node, kind)
    if kind.is_float or (kind.addresses and name != "arith.select"):
        return None
    if name == "tt.make_range":
        ends = {key: int(number) for key, number in _RANGE(text)}
        return lambda _: np.arange(ends["start"], ends["end"])
    if name == "arith.constant" and (dense := DENSE(text)):
        number = constant(f"{dense[1]} : {dense[2]}")
        return lambda _: np.full(kind.shape, number) if isinstance(number, int) else None
    if name in ("tt.reduce", "tt.scan"):
        return _fold(node, tree)
    return _elementwise(node, kind, tree)


def _load(pointer: ValueType, kind: ValueType) -> Computation:
    def load(operands: list[Any]) -> Any:
        address, *rest = operands
        if not isinstance(address, Address) or address.table.bits != max(8, pointer.bits):
            return None
        if not kind.is_tensor:
            if rest and not rest[0]:
                return rest[1] if len(rest) > 1 else 0
            return address.table.item(address.offsets)
        mask = _number(rest[0]) if rest else np.True_
        other = _number(rest[1]) if len(rest) > 1 else np.int64(0)
        # Where the mask is false nothing is read, and the address may be any.
        inside = address.table.read(np.where(mask, address.offsets, 0))
        return None if inside is None else np.where(mask, inside, other)

    return load


def _moved(operands: list[Any]) -> Any:
    address, offset = operands
    if not isinstance(address, Address):
        return None
    return Address(address.table, address.offsets + offset)


def _move(node: Node, kind: ValueType) -> Computation:
    """Return how a tile's elements are arranged anew, or those of a tile of addresses."""
    shape = kind.shape

    def arrange(array: Integers) -> Integers:
        if node.name == "tt.expand_dims" and (axis := AXIS(node.text)):
            return np.expand_dims(array, int(axis[1]))
        if node.name == "tt.trans" and (order := ORDER(node.text)):
            return np.transpose(array, [int(axis) for axis in order[1].split(",")])
        if node.name in ("tt.reshape", "tt.unsplat"):
            return array.reshape(shape)
        return np.broadcast_to(array, shape)

    def move(operands: list[Any]) -> Any:
        (tile,) = operands
        if isinstance(tile, Address):
            offsets = arrange(_number(tile.offsets))
            return Address(tile.table, offsets if kind.is_tensor else int(offsets))
        return _plain(arrange(_number(tile)), kind)

    return move


def _fold(node: Node, tree: Tree) -> Computation | None:
    """Return a reduction or scan by one integer operation; None for any other."""
    body, axis = node.regions[0][0], AXIS(node.text)
    folded = [_FOLDED.get(inner.name) for inner in body.nodes[:-1]]
    function = folded[0] if len(folded) == 1 else None
    if function is None or axis is None or len(node.results) != 1 or "reverse = true" in node.text:
        return None
    kind, place = tree.type_of(node.results[0]), int(axis[1])
    fold = function.reduce if node.name == "tt.reduce" else function.accumulate

    def run(operands: list[Any]) -> Any:
        return _plain(_wrapped(fold(operands[0], axis=place), kind.bits), kind)

    return run


def _elementwise(node: Node, kind: ValueType, tree: Tree) -> Computation | None:
    source = tree.type_of(node.operands[0]) if node.operands else kind
    name, bits = node.name, kind.bits
    function = _BINARY.get(name)
    if name == "arith.select":
        return lambda operands: _selected(operands, kind)
    if source.is_float or source.addresses:
        return None
    if name == "arith.cmpi":
        return _comparison(node.text.partition(",")[0], source.bits)
    if function is not None and bits > 1:
        return lambda operands: _wrapped(function(*map(_number, operands)), bits)
    if function in (np.bitwise_and, np.bitwise_or, np.bitwise_xor):
        return lambda operands: function(*map(_number, operands))  # of booleans
    if name in _UNSIGNED and bits < 64:
        return lambda operands: _wrapped(
            _UNSIGNED[name](*(_unsigned(_number(value), bits) for value in operands)), bits
        )
    if name == "arith.extui" and source.bits < 64:
        return lambda operands: _unsigned(_number(operands[0]), source.bits)
    if name == "arith.extsi":
        sign = -1 if source.bits == 1 else 1
        return lambda operands: sign * _number(operands[0])
    if name in ("arith.trunci", "arith.index_cast"):
        return lambda operands: _wrapped(_number(operands[0]), bits)
    return None


def _comparison(predicate: str, bits: int) -> Computation | None:
    function = _COMPARE.get(predicate) or _COMPARE.get(predicate[1:])
    if function is None or (predicate[0] == "u" and bits == 64):
        return None
    if bits == 1 and predicate not in ("eq", "ne"):
        return None
    read: Callable[[Integers], Integers] = (
        (lambda value: _unsigned(value, bits)) if predicate[0] == "u" else (lambda value: value)
    )
    return lambda operands: function(*(read(_number(v)) for v in operands)).astype(np.int64)


def _selected(operands: list[Any], kind: ValueType) -> Any:
    condition, first, second = operands
    if isinstance(first, Address) and isinstance(second, Address):
        if first.table is not second.table:
            return None if kind.is_tensor else (first if condition else second)
        if not kind.is_tensor:
            return first if condition else second
        return Address(first.table, np.where(condition, first.offsets, second.offsets))
    if kind.addresses:
        return None
    return np.where(_number(condition), _number(first), _number(second))


def _number(value: Any) -> Integers:
    return np.asarray(value, dtype=np.int64)


def _plain(array: Integers, kind: ValueType) -> Any:
    """Return Python's integer of a scalar, which all other steps compute with."""
    return array if kind.is_tensor else int(array.reshape(()))


def _unsigned(array: Integers, bits: int) -> Integers:
    return array & ((1 << bits) - 1)


def _wrapped(array: Integers, bits: int) -> Integers:
    if bits == 1:
        return array & 1
    shift = 64 - bits
    return array << shift >> shift if shift > 0 else array
