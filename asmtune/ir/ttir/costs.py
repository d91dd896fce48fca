"""Costs of operations: products, tensor elements by class, barriers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Final

from asmtune.ir.ttir.memory import KINDS
from asmtune.ir.ttir.mlir_types import element_bits, parse_type, result_types, split_list
from asmtune.ir.ttir.plan import CONTROL, Flow
from asmtune.ir.ttir.tree import COPIES, Body, Node


@dataclass(frozen=True)
class Dot:
    """A matrix product, (batch x) M x K times K x N.

    Attributes:
        m, n, k: extents of the tile that a program multiplies at once.
        batch: leading extent, 1 for a plain product.
        operand: MLIR's element type of the left operand ("f16", "f8E4M3FN", "i8").
        accumulator: MLIR's element type of the result ("f32", "i32").
    """

    m: int
    n: int
    k: int
    batch: int
    operand: str
    accumulator: str

    @property
    def flops(self) -> int:
        """Return the multiplications and additions of one execution by one program."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def operand_bits(self) -> int:
        """Return the width of an element of the left operand, as multiplied.

        A 32-bit float is multiplied as tf32, which takes 32 bits of the operand.
        """
        return element_bits(self.operand)


BARRIERS: Final = frozenset({"gpu.barrier", "ttg.barrier", "ttg.local_barrier"})
_CLASSES: Final = {
    "float": "addf subf mulf negf maxnumf minnumf maximumf minimumf cmpf",
    "divide": "divf remf",
    "convert": "extf truncf sitofp uitofp fptosi fptoui",
    "integer": "addi subi muli cmpi andi ori xori shli shrsi shrui minsi maxsi minui maxui "
    "extsi extui trunci",
    "integer_divide": "divsi divui remsi remui ceildivsi floordivsi",
}
CLASSES: Final[dict[str, str]] = {
    **{f"arith.{name}": kind for kind, names in _CLASSES.items() for name in names.split()},
    **{f"math.{name}": "float" for name in ("absf", "floor", "ceil", "round", "trunc")},
    "math.fma": "fma",
    "math.absi": "integer",
    "tt.mulhiui": "integer",
    "tt.clampf": "float",
    "tt.precise_divf": "divide",
    "tt.precise_sqrt": "special",
    "tt.extern_elementwise": "special",
    "tt.fp_to_fp": "convert",
    "tt.reduce": "reduce",
    "tt.histogram": "reduce",
    "tt.scan": "scan",
    "tt.trans": "layout",
    "tt.reshape": "layout",
    "tt.join": "layout",
    "tt.split": "layout",
    "tt.cat": "layout",
    "tt.gather": "layout",
    "ttg.convert_layout": "layout",
    "tt.elementwise_inline_asm": "asm",
}
"""Class of an operation on tensors; `math` operations not named are special functions."""

_FREE: Final = frozenset(
    {
        "tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.make_range", "tt.addptr",
        "tt.advance", "tt.bitcast", "tt.make_tensor_ptr", "tt.make_tensor_descriptor", "tt.dot",
        "tt.dot_scaled", "tt.get_program_id", "tt.get_num_programs", "tt.ptr_to_int",
        "tt.int_to_ptr", "ub.poison", "tt.map_elementwise", "gluon.set_auto_layout",
    }
)  # fmt: skip
_HANDING: Final = {
    "scf.yield": 0, "tt.return": 0, "cf.br": 0, "scf.condition": 1, "cf.cond_br": 1,
    "scf.for": 3, "scf.if": 1, "tt.reduce.return": 99, "tt.scan.return": 99,
    "tt.map_elementwise.return": 99,
}  # fmt: skip
"""Operations that only hand values on, with the number of operands that decide control."""
_BY_INPUT: Final = frozenset({"reduce", "scan"})
_VALUE: Final = re.compile(r"%[\w$.\-]+(?:#\d+)?")
_PRECISION: Final = re.compile(r"inputPrecision = (\w+)").search
_FORMATS: Final = re.compile(r"lhs = (\w+) rhs = (\w+)").search
_SCALED_TYPES: Final = {
    "e2m1": "f4E2M1FN",
    "e4m3": "f8E4M3FN",
    "e5m2": "f8E5M2",
    "fp16": "f16",
    "bf16": "bf16",
}  # narrowest first


def class_of(node: Node) -> str | None:
    """Return the class of an element-wise operation; None if it is free or not element-wise."""
    kind = CLASSES.get(node.name)
    if kind is not None:
        return kind
    if node.name == "arith.select":
        kinds = result_types(node.name, node.text, 1)
        return "float" if kinds and parse_type(kinds[0]).is_float else "integer"
    return "special" if node.name.startswith("math.") else None


def has_effect(node: Node) -> bool:
    """Return whether an operation does more than give its results and hand values on."""
    name = node.name
    if name in _HANDING or (name in CONTROL and node.regions):
        return False
    kind = KINDS.get(name)
    if kind is not None:
        return kind != "read" or name in COPIES or "isVolatile = true" in node.text
    if name in ("tt.elementwise_inline_asm", "tt.extern_elementwise"):
        return "pure = false" in node.text
    return not (name.startswith(("arith.", "math.")) or name in _FREE or name in CLASSES)


class Placement:
    """Finds values that are never used, and the block that each operation ends up in.

    The front end writes code that later passes delete (an overflow check behind every integer
    operation) or move out of loops; only the remaining code is counted.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._effects: set[int] = set()
        roots: list[int] = []
        for node in flow.tree.nodes():
            if has_effect(node):
                roots += node.operands
                if node.name not in ("tt.print", "tt.assert", "llvm.intr.assume"):
                    self._effects.update(node.body.loops())
            else:
                roots += node.operands[: _HANDING.get(node.name, 0)]
        self.live = flow.computed_from(roots)
        self._homes: list[Body | None] = [None] * len(flow.tree.sources)
        self._same = list(range(len(flow.tree.sources)))
        self._seen: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._twins: set[int] = set()
        self._constant: set[int] = set()
        for body in flow.tree.bodies:
            for argument in body.arguments:
                self._homes[argument] = body
            for node in body.nodes:
                self._settle(node)

    def home(self, node: Node) -> Body:
        """Return the block that an operation runs in once loop invariants are moved out."""
        home = self._homes[node.results[0]] if node.results else None
        return home or node.body

    def is_live(self, node: Node) -> bool:
        """Return whether an operation has an effect or a used result."""
        if node.results and node.results[0] in self._twins:
            return False
        return has_effect(node) or any(result in self.live for result in node.results)

    def _settle(self, node: Node) -> None:
        body = node.body
        if not has_effect(node) and node.name not in _HANDING and not node.regions:
            reads = node.name in KINDS
            while body.owner is not None and body.owner.name == "scf.for":
                if any(self._homes[operand] is body for operand in node.operands):
                    break
                if reads and body.owner.loop in self._effects:
                    break
                body = body.owner.body
            if not reads:
                self._merge(node, body)
        for result in node.results:
            self._homes[result] = body

    def _merge(self, node: Node, body: Body) -> None:
        """Merge equal operations of a block and fold constants, as later passes do."""
        if node.name == "arith.constant" or (
            node.operands and all(operand in self._constant for operand in node.operands)
        ):
            self._constant.update(node.results)
            if node.name in CLASSES:
                self._twins.update(node.results)
        operands = [self._same[operand] for operand in node.operands]
        bare = _VALUE.sub("", node.text) if operands else node.text
        key = (node.name, body.index, bare, *operands)
        first = self._seen.setdefault(key, node.results)
        if first is not node.results:
            self._twins.update(node.results)
            for result, twin in zip(node.results, first, strict=True):
                self._same[result] = self._same[twin]


def element_count(node: Node) -> int:
    """Return the tensor elements an operation computes; for reductions and scans, its inputs."""
    kind = class_of(node)
    if kind in _BY_INPUT:
        entering = node.text.rpartition(" : ")[2].partition("->")[0].strip()
        types = split_list(entering.removeprefix("(").removesuffix(")"))
        return sum(parse_type(text).elements for text in types)
    types = result_types(node.name, node.text, len(node.results))
    shaped = [parse_type(text) for text in types]
    return max((shape.elements for shape in shaped if shape.is_tensor), default=0)


PRODUCTS: Final = frozenset(
    {"tt.dot", "tt.dot_scaled", "ttng.warp_group_dot", "ttng.tc_gen5_mma",
     "ttng.tc_gen5_mma_scaled"}
)  # fmt: skip
"""Operations that multiply matrices; TTGIR's are those of Hopper and Blackwell."""


_BY_FMA: Final = re.compile(r"parent = #(?:ttg\.)?blocked").search


def read_dot(node: Node) -> tuple[Dot, str] | None:
    """Return a product, and its precision for 32-bit floats."""
    operands, arrow, result_type = node.text.rpartition(" : ")[2].partition(" -> ")
    # tcgen05 leaves its result in the third operand.
    texts = operands.split(" * ") if arrow else split_list(operands)
    sides = [parse_type(split_list(side)[0]) for side in texts[:2] if side.strip()]
    result = parse_type(result_type if arrow else "".join(texts[2:3]))
    if len(sides) != 2 or len(result.shape) < 2 or any(len(side.shape) < 2 for side in sides):
        return None
    left, right = sides
    *batch, m, n = result.shape
    k, operand = left.shape[-1], left.element
    formats = _FORMATS(node.text) if node.name.endswith("_scaled") else None
    if formats is not None:
        lhs, rhs = formats.groups()
        packed = lhs == "e2m1" and "lhs_k_pack = false" not in node.text
        k *= 2 if packed else 1
        known = [kind for form, kind in _SCALED_TYPES.items() if form in (lhs, rhs)]
        operand = known[-1] if known else left.element
    precision = _PRECISION(node.text)
    is_float32 = left.element == "f32" and right.element == "f32"
    dot = Dot(m, n, k, prod(batch), operand, result.element)
    if not is_float32:
        return dot, ""
    if node.name.startswith("ttng."):  # these units multiply 32-bit floats in no other way
        return dot, "tf32"
    if _BY_FMA(node.text):  # whatever precision Gluon's front end writes
        return dot, "ieee"
    return dot, precision[1] if precision else ""
