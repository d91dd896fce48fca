"""Memory that a kernel touches: each access with its size, and the arguments it goes to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from asmtune.ir.ttir.flow import CONTROL, Flow
from asmtune.ir.ttir.mlir_types import ValueType, parse_type, result_types, split_list
from asmtune.ir.ttir.tree import Node

Kind = Literal["read", "write", "atomic"]

KINDS: Final[dict[str, Kind]] = {
    "tt.load": "read",
    "tt.descriptor_load": "read",
    "tt.descriptor_gather": "read",
    "tt.store": "write",
    "tt.descriptor_store": "write",
    "tt.descriptor_scatter": "write",
    "tt.atomic_rmw": "atomic",
    "tt.atomic_cas": "atomic",
    "tt.descriptor_reduce": "atomic",
    # Names before Triton 3.3.
    "tt.experimental_descriptor_load": "read",
    "tt.experimental_descriptor_gather": "read",
    "tt.experimental_descriptor_store": "write",
    "tt.experimental_descriptor_scatter": "write",
}
"""Operations that touch memory; their address is the first operand."""

# The address goes on from the first operand; the others only move it.
_FIRST: Final = frozenset(
    {
        "tt.addptr",
        "tt.advance",
        "tt.make_tensor_ptr",
        "tt.make_tensor_descriptor",
        "tt.reinterpret_tensor_descriptor",
        "tt.experimental_descriptor_create",
    }
)
_PASSING: Final = frozenset(
    {
        "tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans",
        "tt.bitcast", "tt.ptr_to_int", "tt.int_to_ptr", "tt.cat", "tt.join", "tt.split",
        "tt.gather", "tt.reduce", "tt.scan", "tt.reduce.return", "tt.scan.return",
        "tt.map_elementwise", "tt.map_elementwise.return", "tt.return", "tt.print", "tt.assert",
        "scf.yield", "scf.condition", "cf.br", "cf.cond_br", "llvm.intr.assume", "ub.poison",
    }
)  # fmt: skip
_PURE_DIALECTS: Final = ("arith.", "math.")


@dataclass(slots=True)
class Touch:
    """One operation that touches memory.

    Attributes:
        node: the operation.
        kind: what it does.
        roots: arguments that the address may come from, by position; empty if from none.
        foreign: whether it may be an address of no argument, such as one kept in memory.
        elements: of the tile.
        element_bytes: of one element in memory.
        masked: whether part of the tile may be left out.
    """

    node: Node
    kind: Kind
    roots: tuple[int, ...]
    foreign: bool
    elements: int
    element_bytes: int
    masked: bool


def touches(flow: Flow) -> list[Touch]:
    """Every operation that touches memory, in the order of the tree's blocks."""
    found = []
    for body in flow.tree.bodies:
        for node in body.nodes:
            kind = KINDS.get(node.name)
            if kind is not None and node.operands:
                found.append(_touch(flow, node, kind))
    return found


def escapes(flow: Flow) -> set[int]:
    """Arguments whose addresses reach an operation that may do anything with them."""
    found: set[int] = set()
    numbers = any(node.name == "tt.ptr_to_int" for body in flow.tree.bodies for node in body.nodes)
    for body in flow.tree.bodies:
        for node in body.nodes:
            if node.name in KINDS:
                suspects: Iterable[int] = node.operands[1:]
            elif (
                (node.name in CONTROL and node.regions)
                or node.name in _FIRST
                or node.name in _PASSING
                or _is_pure(node)
            ):
                continue
            else:
                suspects = node.operands
            for value in suspects:
                if numbers or flow.tree.type_of(value).addresses:
                    found.update(roots(flow, value)[0])
    return found


def roots(flow: Flow, value: int) -> tuple[tuple[int, ...], bool]:
    """Pointer arguments that a value is computed from, and whether memory is among its sources."""
    tree = flow.tree
    parameters = tree.blocks[0].arguments
    reached = flow.follow([value], _onward)
    arguments = tuple(
        place
        for place, parameter in enumerate(parameters)
        if parameter in reached and parse_type(tree.kernel.arguments[place].type).addresses
    )
    return arguments, not arguments or _from_memory(flow, reached)


def _from_memory(flow: Flow, reached: set[int]) -> bool:
    for value in reached:
        owner, _ = flow.tree.sources[value]
        if isinstance(owner, Node) and owner.name == "tt.int_to_ptr":
            return True
        if isinstance(owner, Node) and owner.name == "tt.load":
            return True
    return False


def _onward(node: Node) -> Iterable[int] | None:
    if node.name in KINDS or node.name in ("tt.dot", "tt.dot_scaled", "tt.histogram"):
        return ()
    if node.name in _FIRST:
        return node.operands[:1]
    if node.name == "arith.select":
        return node.operands[1:]
    return None


def _is_pure(node: Node) -> bool:
    if node.name.startswith(_PURE_DIALECTS) or node.name.startswith("tt.dot"):
        return True
    # A pure external function computes on the address as on a number, or reads at most.
    return node.name == "tt.extern_elementwise" and "pure = true" in node.text


def _touch(flow: Flow, node: Node, kind: Kind) -> Touch:
    tile = _tile(flow, node)
    arguments, foreign = roots(flow, node.operands[0])
    return Touch(node, kind, arguments, foreign, tile.elements, tile.bytes, _masked(node))


def _tile(flow: Flow, node: Node) -> ValueType:
    if node.name.endswith(("gather", "load")) and node.results:
        types = result_types(node.name, node.text, 1)
        return parse_type(types[0] if types else "")
    if node.name.endswith("scatter"):
        return parse_type(split_list(node.text.rpartition(" : ")[2])[-1])
    return flow.tree.type_of(node.operands[0])


def _masked(node: Node) -> bool:
    if node.name == "tt.load":
        return len(node.operands) > 1 or "boundaryCheck" in node.text
    if node.name == "tt.store":
        return len(node.operands) > 2 or "boundaryCheck" in node.text
    return node.name == "tt.atomic_rmw" and len(node.operands) > 2
