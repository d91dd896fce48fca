"""Memory accesses of a kernel: size, arguments that the address comes from, strides."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Literal

from asmtune.ir.ttir.mlir_types import (
    ValueType,
    parse_type,
    result_types,
    split_list,
)
from asmtune.ir.ttir.plan import CONTROL, Flow, steering_values
from asmtune.ir.ttir.tree import Node, Tree

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
    # TTGIR's, which Gluon's front end makes.
    "ttg.async_copy_global_to_local": "read",
    "ttng.async_tma_copy_global_to_local": "read",
    "ttng.async_tma_gather": "read",
    "ttng.async_tma_copy_local_to_global": "write",
    "ttng.async_tma_scatter": "write",
    "ttng.async_tma_reduce": "atomic",
}
"""Operations that touch memory; their address is the first operand."""

# The address goes on from the first operand; the others only move it.
_FIRST: Final = frozenset(
    {
        "tt.addptr", "tt.advance", "tt.make_tensor_ptr", "tt.make_tensor_descriptor",
        "tt.reinterpret_tensor_descriptor", "ttng.reinterpret_tensor_descriptor",
    }
)  # fmt: skip
_PASSING: Final = frozenset(
    {
        "tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans",
        "tt.bitcast", "tt.ptr_to_int", "tt.int_to_ptr", "tt.cat", "tt.join", "tt.split",
        "tt.gather", "tt.reduce", "tt.scan", "tt.reduce.return", "tt.scan.return",
        "tt.map_elementwise", "tt.map_elementwise.return", "tt.return", "tt.print", "tt.assert",
        "scf.yield", "scf.condition", "cf.br", "cf.cond_br", "llvm.intr.assume", "ub.poison",
        "ttg.convert_layout", "ttg.warp_specialize", "ttg.warp_yield", "ttg.warp_return",
        "gluon.set_auto_layout",
    }
)  # fmt: skip
_PURE_DIALECTS: Final = ("arith.", "math.")

# PTX that writes memory, but for stores, reductions and atomics on shared or local memory.
_ASM_WRITE: Final = re.compile(
    r"(?<![\w.])(?:(?:st|red|atom|multimem\.(?:st|red))\.(?!\S*(?:shared|local))"
    r"|cp\.(?:reduce\.)?async\.bulk\.(?:tensor\.\w+\.)?global)"
).search
_ESCAPED: Final = re.compile(r"\\[0-9A-F]{2}").sub  # a line's end in MLIR's strings


@dataclass(slots=True)
class MemoryOperation:
    """An operation that reads or writes memory.

    `roots` are the arguments that the address may come from, by position; the others are as in
    `asmtune.ir.ttir.work.MemoryAccess`.
    """

    node: Node
    kind: Kind
    roots: tuple[int, ...]
    foreign: bool
    elements: int
    element_bytes: int
    by_index: bool


def memory_operations(flow: Flow) -> list[MemoryOperation]:
    """Return every operation that reads or writes memory, in the order of the tree's blocks."""
    operations = []
    for node in flow.tree.nodes():
        kind = KINDS.get(node.name)
        if kind is not None and node.operands:
            tile, (arguments, foreign) = _tile(flow, node), roots(flow, node.operands[0])
            parts = tile.elements, tile.bytes, _by_index(flow, node)
            operations.append(MemoryOperation(node, kind, arguments, foreign, *parts))
    return operations


def _by_index(flow: Flow, node: Node) -> bool:
    """Return whether an address is computed from what another operation loads."""
    owners = (flow.tree.sources[value][0] for value in flow.computed_from(node.operands[:1]))
    return any(isinstance(owner, Node) and owner.name in KINDS for owner in owners)


def steering_loads(flow: Flow, operations: list[MemoryOperation]) -> dict[int, frozenset[int]]:
    """Return what integer loads that steer the kernel give, by the argument that they read.

    Arguments that the kernel writes as well are left out: what it will read is not known.
    """
    loads = [one for one in operations if one.node.name == "tt.load" and len(one.roots) == 1]
    written = {root for one in operations if one.kind != "read" for root in one.roots}
    results = {one.node.results[0]: one.roots[0] for one in loads if _is_integer(flow, one.node)}
    reached = steering_values(flow, frozenset(results))
    steering: dict[int, set[int]] = {}
    for value, place in results.items():
        if value in reached and place not in written:
            steering.setdefault(place, set()).add(value)
    return {place: frozenset(values) for place, values in steering.items()}


def _is_integer(flow: Flow, node: Node) -> bool:
    kind = flow.tree.type_of(node.results[0])
    return kind.role == "value" and not kind.is_float


def escapes(flow: Flow) -> set[int]:
    """Return arguments whose addresses reach an operation that may do anything with them."""
    escaped: set[int] = set()
    numbers = any(node.name == "tt.ptr_to_int" for node in flow.tree.nodes())
    for node in flow.tree.nodes():
        for value in _handed_out(node):
            if numbers or flow.tree.type_of(value).addresses:
                escaped.update(roots(flow, value)[0])
    return escaped


def _handed_out(node: Node) -> tuple[int, ...]:
    if node.name in KINDS:
        return node.operands[1:]
    is_known = node.name in _FIRST or node.name in _PASSING or _is_pure(node)
    return () if is_known or (node.name in CONTROL and node.regions) else node.operands


def foreign_writes(flow: Flow, operations: list[MemoryOperation]) -> list[Node]:
    """Return operations that may write memory outside all arguments."""
    stores = [one.node for one in operations if one.foreign and one.kind != "read"]
    return stores + [node for node in flow.tree.nodes() if _writes_elsewhere(flow, node)]


def _writes_elsewhere(flow: Flow, node: Node) -> bool:
    """Return whether inline assembly, or a function with effects, may write by such an address."""
    if not (
        (node.name == "tt.elementwise_inline_asm" and _ASM_WRITE(_ESCAPED(" ", node.text)))
        or (node.name == "tt.extern_elementwise" and not _is_pure(node))
    ):
        return False
    kinds = {value: flow.tree.type_of(value) for value in node.operands}
    pointers = [value for value, kind in kinds.items() if kind.addresses]
    if pointers:
        return any(roots(flow, value)[1] for value in pointers)
    # A number of 64 bits may be an address; one of 32 is at most an address of shared memory.
    numbers = [value for value, kind in kinds.items() if kind.element == "i64"]
    return bool(numbers) and all(roots(flow, value)[1] for value in numbers)


def roots(flow: Flow, value: int) -> tuple[tuple[int, ...], bool]:
    """Return the pointer arguments a value is computed from, and whether memory is a source."""
    tree = flow.tree
    parameters = tree.blocks[0].arguments
    reached = flow.follow([value], _onward)
    arguments = tuple(
        place
        for place, parameter in enumerate(parameters)
        if parameter in reached and parse_type(tree.kernel.arguments[place].type).addresses
    )
    owners = (tree.sources[value][0] for value in reached)
    foreign = any(
        isinstance(owner, Node) and owner.name in ("tt.int_to_ptr", "tt.load") for owner in owners
    )
    return arguments, foreign or not arguments


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


def _tile(flow: Flow, node: Node) -> ValueType:
    if node.name.endswith(("gather", "load")) and node.results:
        types = result_types(node.name, node.text, 1)
        return parse_type(types[0] if types else "")
    if node.name.startswith(("ttng.async_tma_gather", "ttng.async_tma_scatter")):
        kinds = [parse_type(text) for text in split_list(node.text.rpartition(" : ")[2])]
        return max(kinds, key=lambda kind: kind.elements)
    if node.name.endswith("scatter"):
        return parse_type(split_list(node.text.rpartition(" : ")[2])[-1])
    return flow.tree.type_of(node.operands[0])


MASKED: Final = {
    "tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2, "ttg.async_copy_global_to_local": 2,
}  # fmt: skip
"""Position of the mask among the operands, by operation."""


def mask_of(node: Node) -> int | None:
    """Return the operand that says which elements an operation touches; None for all of them."""
    place = MASKED.get(node.name)
    return None if place is None or place >= len(node.operands) else node.operands[place]


def other_file(tree: Tree, node: Node) -> str:
    """Return the name of an operation's source file; "" if it is the kernel's own."""
    own, position = tree.module.position(tree.kernel.location), tree.line_of(node)
    if own is None or position is None or position[0] == own[0]:
        return ""
    return PurePath(position[0]).name
