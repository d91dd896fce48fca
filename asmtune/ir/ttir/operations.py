"""Evaluate one scalar operation of the tree."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from asmtune.ir.ttir.mlir_types import ValueType
from asmtune.ir.ttir.scalars import (
    FLOATS,
    SIGNED,
    UNSIGNED,
    Unknown,
    Value,
    compare_floats,
    compare_integers,
    integer,
    round_to,
    signed,
    unsigned,
    wrap,
)
from asmtune.ir.ttir.tree import Node

_SAME: Final = frozenset({"arith.bitcast", "tt.bitcast"})
_KNOWN: Final = frozenset({"tt.bitcast", "tt.fp_to_fp", "tt.mulhiui"})

MOVES: Final = frozenset(
    {"tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans"}
)
TILES: Final = MOVES | {"tt.addptr", "tt.load", "tt.reduce", "tt.scan", "tt.bitcast"}
"""Operations that are computed as well where what they are loaded from is known."""

# Python's operators compute these for operands of the type's width; see `evaluator`.
_PLAIN: Final[Mapping[str, Callable[[int, int], int]]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.andi": operator.and_,
    "arith.ori": operator.or_,
    "arith.xori": operator.xor,
    "arith.minsi": min,
    "arith.maxsi": max,
}
_DIVIDING: Final[Mapping[str, Callable[[int, int], int]]] = {
    "arith.divsi": operator.floordiv,
    "arith.remsi": operator.mod,
}
_COMPARING: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "slt": operator.lt,
    "sle": operator.le,
    "sgt": operator.gt,
    "sge": operator.ge,
}
_WIDENING: Final = frozenset({"arith.extsi", "arith.trunci", "arith.bitcast", "arith.index_cast"})

Evaluator = Callable[[list[Value]], Value]


@dataclass(slots=True)
class EvaluationStep:
    """A node to evaluate.

    `kind` and `operand` are the types of its result and first operand, None for control operations;
    `run` computes the result from the list of all values.
    """

    node: Node
    kind: ValueType | None = None
    operand: ValueType | None = None
    run: Evaluator | None = None


def evaluator(step: EvaluationStep) -> Evaluator:
    """Return a function that computes a step's result.

    Common integer operations get a fast function, which calls `apply` if an operand is unknown or
    the result does not fit: 0.2 against 1.3 us.
    """
    operands = step.node.operands

    def slow(values: list[Value]) -> Value:
        return apply(step, [values[operand] for operand in operands])

    kind, source = step.kind, step.operand
    if kind is None or source is None or kind.is_tensor or kind.addresses:
        return slow
    if kind.is_float or source.bits == 1:
        return slow
    name = step.node.name
    limit = 1 << (kind.bits - 1)
    if name in _PLAIN and len(operands) == 2:
        return _binary(_PLAIN[name], (-limit, -limit), operands, slow, limit)
    if name in _DIVIDING and len(operands) == 2:
        return _binary(_DIVIDING[name], (0, 1), operands, slow, limit)
    if name == "arith.cmpi" and len(operands) == 2:
        function = _COMPARING.get(step.node.text.partition(",")[0])
        return _comparison(function, operands, slow) if function else slow
    if name in _WIDENING and not source.is_float and source.role == "value":
        return _copy(operands[0], slow, limit)
    return slow


def _binary(
    function: Callable[[int, int], int],
    least: tuple[int, int],
    operands: tuple[int, ...],
    slow: Evaluator,
    limit: int,
) -> Evaluator:
    first, second = operands
    low, high = least

    def fast(values: list[Value]) -> Value:
        a, b = values[first], values[second]
        if a.__class__ is int and b.__class__ is int and a >= low and b >= high:
            result = function(a, b)
            if -limit <= result < limit:
                return result
        return slow(values)

    return fast


def _comparison(
    function: Callable[[int, int], bool], operands: tuple[int, ...], slow: Evaluator
) -> Evaluator:
    first, second = operands

    def fast(values: list[Value]) -> Value:
        a, b = values[first], values[second]
        if a.__class__ is int and b.__class__ is int:
            return 1 if function(a, b) else 0
        return slow(values)

    return fast


def _copy(operand: int, slow: Evaluator, limit: int) -> Evaluator:
    def fast(values: list[Value]) -> Value:
        value = values[operand]
        if value.__class__ is int and -limit <= value < limit:
            return value
        return slow(values)

    return fast


def apply(step: EvaluationStep, operands: list[Value]) -> Value:
    """Return the result of an operation on known values, or why it is unknown."""
    node, kind = step.node, step.kind
    line = node.operation.line
    known = not node.name.startswith("tt.") or node.name in FLOATS or node.name in _KNOWN
    if kind is None or kind.is_tensor or kind.addresses or not known:
        return Unknown(_reason(node.name), line)
    if node.name == "arith.select":
        return _select(operands)
    for operand in operands:
        if isinstance(operand, Unknown):
            return operand
    convert = _CONVERSIONS.get(node.name)
    try:
        if convert is not None and step.operand is not None:
            result = convert(operands[0], step.operand.bits, kind.bits)
            return round_to(result, kind.element) if isinstance(result, float) else result
        return _arithmetic(step, operands, kind.bits, kind.element)
    except (ArithmeticError, ValueError, IndexError, TypeError) as error:
        return Unknown(f"{node.name}: {error}", line)


def _arithmetic(step: EvaluationStep, operands: list[Value], bits: int, element: str) -> Value:
    node = step.node
    name = node.name
    a = operands[0]
    if name in SIGNED or name in UNSIGNED:
        return integer(name, int(a), int(operands[1]), bits)  # type: ignore[arg-type]
    if name in FLOATS:
        return round_to(FLOATS[name](*operands), element)
    source = step.operand.bits if step.operand is not None else 32
    if name == "arith.cmpi":
        return compare_integers(node.text, int(a), int(operands[1]), source)  # type: ignore[arg-type]
    if name == "arith.cmpf":
        return compare_floats(node.text, float(a), float(operands[1]))  # type: ignore[arg-type]
    if name in _SAME and step.operand is not None and step.operand.element == element:
        return a
    if name.startswith("arith.index_cast"):
        return wrap(int(a), bits)  # type: ignore[arg-type]
    return Unknown(_reason(name), node.operation.line)


def _select(operands: list[Value]) -> Value:
    condition, first, second = operands
    if isinstance(condition, Unknown):
        return first if first == second else condition
    return first if condition else second


def _reason(name: str) -> str:
    if name == "tt.load" or name.startswith("tt.descriptor"):
        return "loaded from memory"
    if name.startswith("tt.atomic"):
        return "the result of an atomic operation"
    return f"computed by {name}"


def _truncate(value: float, bits: int) -> int:
    if math.isnan(value) or math.isinf(value):
        raise ValueError("no integer")
    return wrap(int(value), bits)


# Each takes the value, the bits of its type and those of the result's.
_CONVERSIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "arith.extsi": lambda value, bits, _: signed(value, bits),
    "arith.extui": lambda value, bits, _: unsigned(value, bits),
    "arith.trunci": lambda value, _, bits: wrap(value, bits),
    "arith.sitofp": lambda value, bits, _: float(signed(value, bits)),
    "arith.uitofp": lambda value, bits, _: float(unsigned(value, bits)),
    "arith.fptosi": lambda value, _, bits: _truncate(value, bits),
    "arith.fptoui": lambda value, _, bits: _truncate(value, bits),
    "arith.extf": lambda value, *_: value,
    "arith.truncf": lambda value, *_: value,
    "tt.fp_to_fp": lambda value, *_: value,
    "math.absi": lambda value, _, bits: wrap(abs(value), bits),
}
