"""MLIR's types as Triton prints them: shapes, element types, pointers and descriptors."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_OPENING: Final = frozenset("([{<")
_CLOSING: Final = frozenset(")]}>")
# Nine digits at most: int() raises on text of more than 4,300.
_SHAPED: Final = re.compile(r"((?:\d{1,9}x)*)(.*)", re.DOTALL)
_NESTED: Final = re.compile(r"[(\[{<\"]").search
_WIDEST: Final = 512  # bits; no type of Triton's is wider, a misread one may be
_FLOAT: Final = re.compile(r"b?f\d")

AXIS: Final = re.compile(r"axis = (\d{1,4})").search
ORDER: Final = re.compile(r"order = array<i32: ([\d, ]{1,99})>").search
DENSE: Final = re.compile(r"dense<([^\[\"]*)> : tensor<.*?(\w+)>").match
"""Attributes of operations: an axis, the order of a transposition, an equal-valued constant."""


def split_list(text: str) -> list[str]:
    """Split at commas, but not at those in brackets or strings."""
    text = text.strip()
    if not text:
        return []
    if not _NESTED(text):
        return [part.strip() for part in text.split(",")]
    parts: list[str] = []
    depth = start = 0
    quoted = False
    for place, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= char != ">" or text[place - 1] != "-"
        elif char == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    parts.append(text[start:].strip())
    return parts


@dataclass(frozen=True, slots=True)
class ValueType:
    """Shape, element type and role of a value.

    Attributes:
        shape: extents of a tensor, or of the tile that a descriptor or block pointer
            addresses; empty for a scalar.
        element: MLIR's element type ("f16"); for pointers and descriptors that of the memory.
        role: "value", "pointer" (one, or a tensor of them) or "descriptor".
        is_tensor: whether the value itself is a tensor.
    """

    shape: tuple[int, ...]
    element: str
    role: str
    is_tensor: bool

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def bits(self) -> int:
        """Return the bits of an element; 64 for `index` and for a pointer in memory."""
        if self.element == "index" or self.element.startswith("!tt.ptr"):
            return 64
        return min(element_bits(self.element), _WIDEST)

    @property
    def bytes(self) -> int:
        """Return the bytes that an element takes in memory; a boolean takes one."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        """Return whether the elements are floating-point numbers."""
        return self.role == "value" and _FLOAT.match(self.element) is not None

    @property
    def addresses(self) -> bool:
        """Return whether it is an address of memory."""
        return self.role != "value"


_BITS: Final = re.compile(r"\d+")


def element_bits(element: str) -> int:
    """Return the bits of an MLIR element type: 8 for f8E4M3FN, 16 for bf16, 1 for i1."""
    match = _BITS.search(element)
    return int(match.group()) if match else 32


@lru_cache(maxsize=4096)
def parse_type(text: str) -> ValueType:
    """Parse a type; an unknown one counts as a scalar of that element type."""
    text = text.strip()
    if text.startswith("!tt.tensordesc<"):
        inner = _inside(text, "!tt.tensordesc<")
        shape, element = parse_shape(_inside(inner, "tensor<"))
        return ValueType(shape, element, "descriptor", is_tensor=False)
    if text.startswith("!tt.ptr<"):
        inner = split_list(_inside(text, "!tt.ptr<"))[0]
        if inner.startswith("tensor<"):
            shape, element = parse_shape(_inside(inner, "tensor<"))
            return ValueType(shape, element, "pointer", is_tensor=False)
        return ValueType((), inner, "pointer", is_tensor=False)
    if text.startswith("!ttg.memdesc<"):
        shape, element = parse_shape(_inside(text, "!ttg.memdesc<"))
        return ValueType(shape, element, "value", is_tensor=False)
    if not text.startswith("tensor<"):
        return ValueType((), text, "value", is_tensor=False)
    shape, element = parse_shape(_inside(text, "tensor<"))
    if element.startswith("!tt.ptr<"):
        pointee = split_list(_inside(element, "!tt.ptr<"))[0]
        return ValueType(shape, pointee, "pointer", is_tensor=True)
    return ValueType(shape, element, "value", is_tensor=True)


def _inside(text: str, head: str) -> str:
    return text[len(head) : text.rfind(">")] if text.startswith(head) else text


def parse_shape(text: str) -> tuple[tuple[int, ...], str]:
    """Parse a shape: `64x32xf16` gives ((64, 32), "f16"); the encoding is dropped."""
    match = _SHAPED.match(split_list(text)[0] if text else "")
    extents, element = match.groups() if match else ("", "")
    return tuple(int(extent) for extent in extents.split("x")[:-1]), element


_POINTER_MAKERS: Final = frozenset({"tt.make_tensor_ptr", "tt.advance"})
_TO: Final = re.compile(r"\bto (.*)")


def result_types(name: str, text: str, count: int) -> list[str]:
    """Return the types of an operation's results, from its attributes and types as text."""
    if name in ("scf.for", "scf.if", "scf.while"):
        return _arrow_types(re.sub(r" +: [\w!.<>]+.*", "", text) if name == "scf.for" else text)
    _, colon, tail = text.rpartition(" : ")
    if not colon:
        tail = text[2:] if text.startswith(": ") else "i1"  # `arith.constant true`
    if "->" in tail:
        return _arrow_types(tail)
    if name == "tt.load":
        kind = parse_type(split_list(tail)[0])
        return [_tensor_type(kind, kind.element)]
    if name.startswith("arith.cmp"):
        kind = parse_type(tail)
        return [_tensor_type(kind, "i1")]
    if name in _POINTER_MAKERS or name == "tt.make_tensor_descriptor":
        pointee = split_list(tail)[-1]
        prefix = "!tt.ptr" if name in _POINTER_MAKERS else "!tt.tensordesc"
        return [prefix + pointee if pointee.startswith("<") else pointee]
    if name == "arith.select":
        return [split_list(tail)[-1]]
    if match := _TO.search(tail):
        return [match[1]]
    types = split_list(tail)
    return types if len(types) == count else types[:1] * count


def _arrow_types(text: str) -> list[str]:
    # An attribute dictionary may follow a region's end, as in `-> (i32) {tt.flatten}`.
    tail = text.rpartition("->")[2].strip()
    if tail.startswith("("):
        tail = tail[1 : tail.find(")")]
    return split_list(tail)


def _tensor_type(kind: ValueType, element: str) -> str:
    if not kind.shape and not kind.is_tensor:
        return element
    return f"tensor<{'x'.join(map(str, kind.shape))}x{element}>"
