"""Scalar operations of `arith` and `math`, as the machine computes them.

Integers are Python's, wrapped to their type's width and signed, except booleans (i1),
which are 0 or 1. Floats are rounded to their type where Python can. `apply` evaluates one
operation of the tree on known values.

After MLIR's "arith" and "math" dialect references.
"""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from asmtune.ir.ttir.mlir_types import ValueType
from asmtune.ir.ttir.tree import Node

Number = int | float
_PACKS: Final = {"f16": "e", "f32": "f"}
_HEX: Final = {"f16": ("H", "e"), "f32": ("I", "f"), "f64": ("Q", "d")}
_CONSTANT: Final = re.compile(r"(true|false|-?0x[0-9A-Fa-f]{1,16}|[-+.\deE]{1,40})(?: : (\S+))?")
_PREDICATE: Final = re.compile(r"\s*(\w+),").match


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that cannot be evaluated.

    Attributes:
        reason: why, in words.
        line: line of the TTIR text where it came up.
    """

    reason: str
    line: int = 0


Value = int | float | Unknown


def wrap(value: int, bits: int) -> int:
    """Return the value that a register of that width holds."""
    if bits == 1:
        return value & 1
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def unsigned(value: int, bits: int) -> int:
    """Return the same bits read as an unsigned number."""
    return value & ((1 << bits) - 1)


def signed(value: int, bits: int) -> int:
    """Return the same bits read as a signed number; true is -1."""
    return -value if bits == 1 else value


def round_to(value: float, element: str) -> float:
    """Round to the nearest float of an element type; types that Python lacks are not rounded."""
    code = _PACKS.get(element)
    if code is None or value != value or math.isinf(value):
        return value
    try:
        return float(struct.unpack(code, struct.pack(code, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def constant(text: str) -> Number | None:
    """Parse the value of an `arith.constant`; None if it is not a scalar's."""
    match = _CONSTANT.fullmatch(text)
    if match is None:
        return None
    body, kind = match.groups()
    if body in ("true", "false"):
        return int(body == "true")
    floating = kind is not None and re.match(r"b?f\d", kind)
    try:
        if "x" in body:
            if (codes := _HEX.get(kind or "")) is None:
                return None if floating else int(body, 16)
            return float(struct.unpack(codes[1], struct.pack(codes[0], int(body, 16)))[0])
        return float(body) if floating else int(body)
    except (ValueError, struct.error):
        return None


def _divide(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: int, b: int) -> int:
    return a - b * _divide(a, b)


def _ceil_divide(a: int, b: int) -> int:
    return -(-a // b)


def _shift(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def checked(a: int, b: int) -> int:
        if not 0 <= b < 64:
            raise ValueError("a shift by more than the width")
        return function(a, b)

    return checked


SIGNED: Final[Mapping[str, Callable[[int, int], int]]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.divsi": _divide,
    "arith.remsi": _remainder,
    "arith.ceildivsi": _ceil_divide,
    "arith.floordivsi": operator.floordiv,
    "arith.minsi": min,
    "arith.maxsi": max,
    "arith.andi": operator.and_,
    "arith.ori": operator.or_,
    "arith.xori": operator.xor,
    "arith.shli": _shift(operator.lshift),
    "arith.shrsi": _shift(operator.rshift),
}
UNSIGNED: Final[Mapping[str, Callable[[int, int], int]]] = {
    "arith.divui": operator.floordiv,
    "arith.remui": operator.mod,
    "arith.ceildivui": _ceil_divide,
    "arith.minui": min,
    "arith.maxui": max,
    "arith.shrui": _shift(operator.rshift),
    "tt.mulhiui": lambda a, b: a * b,  # the high half; see `integer`
}


def _nan_max(a: float, b: float) -> float:
    return b if a != a else a if b != b else max(a, b)


def _nan_min(a: float, b: float) -> float:
    return b if a != a else a if b != b else min(a, b)


FLOATS: Final[Mapping[str, Callable[..., float]]] = {
    "arith.addf": operator.add,
    "arith.subf": operator.sub,
    "arith.mulf": operator.mul,
    "arith.divf": operator.truediv,
    "arith.remf": math.fmod,
    "arith.negf": operator.neg,
    "arith.maxnumf": _nan_max,
    "arith.minnumf": _nan_min,
    "arith.maximumf": max,
    "arith.minimumf": min,
    "tt.precise_divf": operator.truediv,
    "tt.precise_sqrt": math.sqrt,
    "tt.clampf": lambda x, low, high: min(max(x, low), high),
    "math.absf": abs,
    "math.ceil": lambda x: float(math.ceil(x)),
    "math.floor": lambda x: float(math.floor(x)),
    "math.round": lambda x: float(math.floor(abs(x) + 0.5)) * math.copysign(1.0, x),
    "math.roundeven": lambda x: float(round(x)),
    "math.trunc": lambda x: float(math.trunc(x)),
    "math.sqrt": math.sqrt,
    "math.rsqrt": lambda x: 1.0 / math.sqrt(x),
    "math.exp": math.exp,
    "math.exp2": lambda x: 2.0**x,
    "math.log": math.log,
    "math.log2": math.log2,
    "math.sin": math.sin,
    "math.cos": math.cos,
    "math.erf": math.erf,
    "math.tanh": math.tanh,
    "math.fma": lambda a, b, c: a * b + c,
    "math.powf": lambda a, b: float(a**b),
}

_COMPARE: Final[Mapping[str, Callable[[Number, Number], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def integer(name: str, a: int, b: int, bits: int) -> int:
    """Return the result of a binary integer operation.

    Raises:
        ZeroDivisionError: division by zero.
        ValueError: a shift by more than the width.
    """
    if function := SIGNED.get(name):
        return wrap(function(signed(a, bits), signed(b, bits)), bits)
    product = UNSIGNED[name](unsigned(a, bits), unsigned(b, bits))
    return wrap(product >> bits if name == "tt.mulhiui" else product, bits)


def compare_integers(text: str, a: int, b: int, bits: int) -> int:
    """Evaluate `arith.cmpi`; `text` begins with the predicate (`slt, ...`)."""
    match = _PREDICATE(text)
    predicate = match[1] if match else ""
    if predicate in ("eq", "ne"):
        return int(_COMPARE[predicate](a, b))
    read = unsigned if predicate[0] == "u" else signed
    return int(_COMPARE[predicate[1:]](read(a, bits), read(b, bits)))


def compare_floats(text: str, a: float, b: float) -> int:
    """Evaluate `arith.cmpf`: with a NaN, ordered predicates are false and unordered ones true."""
    match = _PREDICATE(text)
    predicate = match[1] if match else ""
    unordered = a != a or b != b
    if predicate in ("ord", "uno"):
        return int(unordered == (predicate == "uno"))
    if predicate in ("true", "false"):
        return int(predicate == "true")
    if unordered:
        return int(predicate[0] == "u")
    return int(_COMPARE[predicate[1:]](a, b))


_SAME: Final = frozenset({"arith.bitcast", "tt.bitcast"})
_KNOWN: Final = frozenset({"tt.bitcast", "tt.fp_to_fp", "tt.mulhiui"})

MOVES: Final = frozenset(
    {"tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans"}
)
TILES: Final = MOVES | {"tt.addptr", "tt.load", "tt.reduce", "tt.scan", "tt.bitcast"}
"""Operations that are computed as well where what they are loaded from is known."""

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
    """Return a function that computes a step's result from all values."""
    operands = step.node.operands
    return lambda values: apply(step, [values[operand] for operand in operands])


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
