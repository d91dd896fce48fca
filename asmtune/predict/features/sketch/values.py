"""Values of a TTGIR kernel: their types and layouts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from asmtune.ir.ttir.mlir_types import parse_type, result_types, split_list
from asmtune.ir.ttir.tree import Body, Node, Tree
from asmtune.predict.features.sketch.layouts import TensorLayout, layout_of, resolve

_POINTEE: Final = re.compile(r"!tt\.ptr<([^<>]*(?:<[^<>]*>)?[^<>]*)>")
_SHAPE: Final = re.compile(r"(\d+(?:x\d+)*)x(.+)")
_AXIS: Final = re.compile(r"axis = (\d+)").search


@dataclass(frozen=True)
class Kind:
    """Type of a value.

    Attributes:
        shape: of a tensor or of a buffer in shared or tensor memory; empty for a scalar.
        bits: of an element; 64 for an address.
        element: MLIR's type of an element.
        role: "tensor", "memory" (a buffer), "scalar", or "none" for tokens and the like.
        encoding: without aliases, "" for a scalar.
        is_pointer: whether the elements are addresses.
    """

    shape: tuple[int, ...]
    bits: int
    element: str
    role: str
    encoding: str
    is_pointer: bool

    @property
    def is_float(self) -> bool:
        """True if the elements are floating-point numbers."""
        return not self.is_pointer and re.match(r"b?f\d|tf32", self.element) is not None

    @property
    def elements(self) -> int:
        """Number of elements."""
        product = 1
        for extent in self.shape:
            product *= extent
        return product


_NONE: Final = Kind((), 0, "", "none", "", is_pointer=False)


@lru_cache(maxsize=8192)
def read_kind(text: str) -> Kind:
    """Parse a type's text, aliases of encodings resolved."""
    text = text.strip()
    if text.startswith(("!ttg.async", "!ttg.token", "!tt.tensordesc", "!ttng")) or not text:
        return _NONE
    for head, role in (("tensor<", "tensor"), ("!ttg.memdesc<", "memory"), ("<", "memory")):
        if text.startswith(head):
            parts = split_list(text[len(head) : text.rfind(">")])
            match = _SHAPE.match(parts[0])
            shape = tuple(map(int, match[1].split("x"))) if match else ()
            element = match[2] if match else parts[0]
            encoding = parts[1] if len(parts) > 1 else ""
            pointer = element.startswith("!tt.ptr")
            bits = 64 if pointer else parse_type(element).bits
            return Kind(shape, bits, element, role, encoding, pointer)
    kind = parse_type(text)
    return Kind((), 64 if kind.addresses else kind.bits, kind.element, "scalar", "", kind.addresses)


class Values:
    """Types and layouts of a tree's values, read when first asked for.

    `aliases` are encodings by name; `num_warps` are those of the default partition.
    """

    def __init__(self, tree: Tree, aliases: Mapping[str, str], num_warps: int) -> None:
        self.tree = tree
        self.num_warps = num_warps
        self._aliases = aliases
        self._kinds: dict[int, Kind] = {}
        self._layouts: dict[int, TensorLayout] = {}
        self._warps: dict[int, int] = {}

    def kind(self, value: int) -> Kind:
        """Return a value's type."""
        if value not in self._kinds:
            self._kinds[value] = read_kind(resolve(self._type_text(value), self._aliases))
        return self._kinds[value]

    def layout(self, value: int) -> TensorLayout:
        """Return a value's layout over the threads."""
        if value not in self._layouts:
            kind = self.kind(value)
            self._layouts[value] = layout_of(kind.encoding, kind.shape, self.num_warps)
        return self._layouts[value]

    def _type_text(self, value: int) -> str:
        owner, place = self.tree.sources[value]
        if isinstance(owner, Body):
            return self.tree.argument_types.get((owner.index, place), "")
        if owner.name == "tt.load":
            return _POINTEE.sub(r"\1", split_list(owner.text.rpartition(" : ")[2])[0])
        if owner.name.startswith("arith.cmp"):
            text = owner.text.rpartition(" : ")[2]
            match = re.match(r"(tensor<(?:\d+x)*)[^,>]+(.*)", text)
            return f"{match[1]}i1{match[2]}" if match else "i1"
        types = result_types(owner.name, owner.text, len(owner.results))
        return types[place] if place < len(types) else ""


def inserted_axis(node: Node) -> int:
    """Return the axis that `tt.expand_dims` inserts."""
    match = _AXIS(node.text)
    return int(match[1]) if match else 0


_POINTWISE: Final = frozenset(
    {"tt.addptr", "tt.bitcast", "tt.fp_to_fp", "tt.mulhiui", "tt.clampf", "tt.int_to_ptr",
     "tt.ptr_to_int", "tt.precise_divf", "tt.precise_sqrt", "tt.extern_elementwise",
     "tt.elementwise_inline_asm"}
)  # fmt: skip


def is_pointwise(node: Node) -> bool:
    """Return whether each result element depends only on the operands' elements at its place."""
    return node.name.startswith(("arith.", "math.")) or node.name in _POINTWISE
