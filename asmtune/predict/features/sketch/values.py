"""Values of a TTGIR kernel, their types and layouts, and the PTX instructions that make them.

Instructions are counted by class as `asmtune.ir.asm.nvptx` has them, for one element or fixed:
after what Triton's lowering and LLVM's NVPTX back end emit for sm_80 to sm_120, read off their
PTX.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from asmtune.ir.asm.nvptx import OpClass
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


def axis_of(node: Node) -> int:
    """Return the axis that an operation inserts, reduces or scans; 0 if it states none."""
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


Cost = Mapping[OpClass, float]

_I, _L, _F = OpClass.INTEGER, OpClass.LOGIC, OpClass.FLOAT
_C, _S, _M = OpClass.CONVERT, OpClass.SPECIAL, OpClass.MOVE

DEFAULT: Final[Cost] = {_I: 1.0}
"""Cost of an unknown element-wise operation."""

_PLAIN: Final[Mapping[str, OpClass]] = {
    **dict.fromkeys(
        ("addi", "subi", "muli", "shli", "shrsi", "shrui", "minsi", "maxsi", "minui", "maxui"), _I
    ),
    **dict.fromkeys(("divsi", "divui", "remsi", "remui", "ceildivsi", "floordivsi"), _I),
    **dict.fromkeys(("andi", "ori", "xori", "cmpi", "cmpf", "select"), _L),
    **dict.fromkeys(
        ("addf", "subf", "mulf", "negf", "maxnumf", "minnumf", "maximumf", "minimumf"), _F
    ),
    **dict.fromkeys(("sitofp", "uitofp", "fptosi", "fptoui"), _C),
}

_MATH: Final[Mapping[str, Cost]] = {
    "math.exp2": {_S: 1},
    "math.exp": {_S: 1, _F: 1},
    "math.log2": {_S: 1, _F: 2, _L: 2},
    "math.log": {_F: 14, _I: 3, _L: 4, _C: 1},
    "math.rsqrt": {_S: 1},
    "math.sqrt": {_S: 1},
    "math.sin": {_F: 16, _I: 6, _L: 8, _C: 2},
    "math.cos": {_F: 16, _I: 6, _L: 8, _C: 2},
    "math.erf": {_F: 14, _L: 9, _S: 1},
    "math.fma": {_F: 1},
    "math.absf": {_F: 1},
    "math.absi": {_I: 1},
    "math.floor": {_C: 1},
    "math.ceil": {_C: 1},
    "math.tanh": {_F: 12, _S: 2, _L: 3},
}
_SAME: Final = frozenset(
    {"arith.constant", "arith.bitcast", "tt.bitcast", "tt.int_to_ptr", "tt.ptr_to_int"}
)
_EXTERN: Final[Cost] = {_F: 12, _S: 1, _L: 4}
"""Cost of a function of libdevice, or of a `math` operation that is not listed."""


def element_cost(node: Node, result: Kind, operand: Kind) -> Cost:
    """Return an element-wise operation's instructions for one element, or for a scalar.

    The types are those of its result and of its first operand.
    """
    name = node.name
    if name.startswith("math.") or name == "tt.extern_elementwise":
        return _MATH.get(name, _EXTERN)
    if name in ("arith.extf", "arith.truncf", "tt.fp_to_fp"):
        return _between_floats(result, operand)
    if name in ("arith.divf", "tt.precise_divf", "tt.precise_sqrt"):
        return {_S: 1.0} if result.bits >= 32 else {_S: 1.0, _C: 2.0}
    if name == "arith.remf":
        return {_S: 1.0, _F: 3.0, _C: 1.0}
    if name in ("arith.extsi", "arith.extui", "arith.trunci"):
        return _between_integers(result, operand)
    if name in _SAME:
        return {}
    if name == "tt.elementwise_inline_asm":
        return {_I: float(max(1, node.text.count(";")))}
    kind = _PLAIN.get(name.removeprefix("arith."))
    return DEFAULT if kind is None else {kind: 1.0}


def _between_floats(result: Kind, operand: Kind) -> Cost:
    """Cost a conversion: two 16-bit values are converted at once and taken apart by moves."""
    if min(result.bits, operand.bits) <= 8:
        return {_C: 0.5, _M: 0.5} if 16 in (result.bits, operand.bits) else {_C: 1.0}
    if result.bits < operand.bits:
        return {_C: 0.5}
    return {_C: 1.0, _M: 0.5}


def _between_integers(result: Kind, operand: Kind) -> Cost:
    if result.bits == 64 or operand.bits == 64 or operand.bits < 32:
        return {_C: 1.0}
    return {}


FREE: Final = frozenset(
    {"tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.make_range", "tt.reshape",
     "tt.trans", "tt.join", "tt.split", "tt.cat", "scf.yield", "tt.return", "ttg.memdesc_trans",
     "ttg.memdesc_subslice", "ttg.memdesc_reshape", "ttg.memdesc_reinterpret",
     "ttg.local_dealloc", "ub.poison", "tt.reduce.return", "tt.scan.return", "ttg.warp_yield",
     "ttg.warp_return", "llvm.intr.assume", "default", "asmtune.partition",
     "ttg.warp_specialize", "ttng.warp_group_dot_wait", "arith.constant"}
)  # fmt: skip
FIXED: Final[Mapping[str, Mapping[OpClass, float]]] = {
    "ttg.async_commit_group": {OpClass.ASYNC_WAIT: 1.0},
    "ttg.async_wait": {OpClass.ASYNC_WAIT: 1.0},
    "ttng.fence_async_shared": {OpClass.FENCE: 1.0},
    "ttng.wait_barrier": {OpClass.MBARRIER: 1.0, OpClass.BRANCH: 1.0},
    "ttng.arrive_barrier": {OpClass.MBARRIER: 1.0},
    "ttng.init_barrier": {OpClass.MBARRIER: 1.0},
    "ttng.inval_barrier": {OpClass.MBARRIER: 1.0},
    "ttng.barrier_expect": {OpClass.MBARRIER: 1.0},
    "ttng.async_tma_copy_global_to_local": {OpClass.BULK_COPY: 1.0, OpClass.SHUFFLE: 1.0},
    "ttng.tensormap_create": {OpClass.OTHER: 14.0, OpClass.SHARED: 1.0, OpClass.FENCE: 1.0,
                              OpClass.ASYNC_WAIT: 2.0},
    "ttng.async_tma_copy_local_to_global": {OpClass.BULK_COPY: 1.0, OpClass.ASYNC_WAIT: 1.0},
    "ttng.async_tma_store_wait": {OpClass.ASYNC_WAIT: 1.0},
    "tt.get_program_id": {OpClass.MOVE: 1.0},
    "gpu.barrier": {},
    "ttg.barrier": {},
    "ttg.local_barrier": {},
    "ttg.memdesc_index": {OpClass.INTEGER: 2.0},
    "scf.for": {OpClass.BRANCH: 1.0, OpClass.LOGIC: 1.0, OpClass.INTEGER: 1.0},
    "scf.while": {OpClass.BRANCH: 1.0},
    "scf.if": {OpClass.BRANCH: 1.0},
    "cf.br": {OpClass.BRANCH: 1.0},
    "cf.cond_br": {OpClass.BRANCH: 1.0},
}  # fmt: skip


BARRIERS: Final[Mapping[str, int]] = {
    "ttg.async_wait": 1,
    "gpu.barrier": 1,
    "ttg.barrier": 1,
    "ttg.local_barrier": 1,
    "ttng.tensormap_create": 2,
    "ttng.arrive_barrier": 1,
    "ttng.inval_barrier": 1,
    "ttng.barrier_expect": 1,
    "ttng.wait_barrier": 1,
    "ttng.async_tma_copy_global_to_local": 1,
    "ttng.async_tma_copy_local_to_global": 1,
    "ttng.async_tma_store_wait": 1,
}
"""Barriers of all warps that an operation becomes, in the PTX of Triton 3.6."""
