"""Memory accesses of a kernel: size, arguments that the address comes from, strides."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from asmtune.ir.ttir.evaluate import ProgramArguments
from asmtune.ir.ttir.mlir_types import (
    AXIS,
    DENSE,
    ORDER,
    ValueType,
    parse_type,
    result_types,
    split_list,
)
from asmtune.ir.ttir.operations import EvaluationStep, apply
from asmtune.ir.ttir.plan import CONTROL, EvaluationPlan, Flow, steering_values
from asmtune.ir.ttir.scalars import Unknown, Value, constant
from asmtune.ir.ttir.tree import Body, Node

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
        "tt.addptr", "tt.advance", "tt.make_tensor_ptr", "tt.make_tensor_descriptor",
        "tt.reinterpret_tensor_descriptor", "ttng.reinterpret_tensor_descriptor",
        "tt.experimental_descriptor_create",
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
    masked: bool
    by_index: bool


def memory_operations(flow: Flow) -> list[MemoryOperation]:
    """Return every operation that reads or writes memory, in the order of the tree's blocks."""
    operations = []
    for node in flow.tree.nodes():
        kind = KINDS.get(node.name)
        if kind is not None and node.operands:
            tile, (arguments, foreign) = _tile(flow, node), roots(flow, node.operands[0])
            parts = tile.elements, tile.bytes, _masked(node), _by_index(flow, node)
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


def _masked(node: Node) -> bool:
    return mask_of(node) is not None or "boundaryCheck" in node.text


MASKED: Final = {
    "tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2, "ttg.async_copy_global_to_local": 2,
}  # fmt: skip
"""Position of the mask among the operands, by operation."""


def mask_of(node: Node) -> int | None:
    """Return the operand that says which elements an operation touches; None for all of them."""
    place = MASKED.get(node.name)
    return None if place is None or place >= len(node.operands) else node.operands[place]


_ORDERED: Final = ("slt", "sle", "ult", "ule", "sgt", "sge", "ugt", "uge")


Steps = tuple[int | None, ...]

_KEEPING: Final = frozenset(
    {
        "tt.broadcast", "tt.bitcast", "arith.bitcast", "arith.extsi", "arith.extui",
        "arith.trunci", "arith.index_cast", "ttg.convert_layout", "gluon.set_auto_layout",
    }
)  # fmt: skip
# Wrapped or clamped offsets, as in `% M`: neighbours stay neighbours but at an edge.
_CLAMPING: Final = frozenset({"arith.remsi", "arith.remui", "arith.minsi", "arith.maxsi"})
_MAX_DEPTH: Final = 200


class Strides:
    """Computes strides of tiles in memory, known where a launch's arguments determine them."""

    def __init__(self, plan: EvaluationPlan, launch: ProgramArguments) -> None:
        self._plan = plan
        self._launch = launch
        self._known: dict[int, Steps] = {}
        self._scalars: dict[int, Value] = {}
        self._depth = 0

    def of(self, operation: MemoryOperation) -> Steps:
        """Return the elements between neighbours along each axis of a tile; None if unknown."""
        value = operation.node.operands[0]
        kind = self._plan.tree.type_of(value)
        if kind.role == "descriptor":
            # The hardware's copies need a last axis without gaps.
            return (*([None] * (len(kind.shape) - 1)), 1)
        if kind.shape and not kind.is_tensor:
            return self._block_pointer(value, len(kind.shape))
        return self._steps(value)

    def share(self, operation: MemoryOperation) -> float:
        """Return the share of a tile that a mask of bounds leaves; 1 where nothing tells.

        Tiles are taken to follow each other from the first element up to the bound, so that the
        last one holds the rest.
        """
        mask = mask_of(operation.node)
        return 1.0 if mask is None else math.prod(self._within(mask, 0))

    def _within(self, mask: int, depth: int) -> tuple[float, ...]:
        """Return the share along each axis of a mask."""
        owner, _ = self._plan.tree.sources[mask]
        shape = self._plan.tree.type_of(mask).shape
        whole = (1.0,) * len(shape)
        if isinstance(owner, Body) or depth > _MAX_DEPTH:
            return whole
        if owner.name == "arith.andi":
            both = (self._within(value, depth + 1) for value in owner.operands)
            return tuple(map(min, *both))
        if owner.name == "tt.broadcast":
            return self._within(owner.operands[0], depth + 1)
        if owner.name == "tt.expand_dims" and (match := AXIS(owner.text)):
            shares, axis = self._within(owner.operands[0], depth + 1), int(match[1])
            return (*shares[:axis], 1.0, *shares[axis:])
        if owner.name == "tt.trans" and (match := ORDER(owner.text)):
            shares = self._within(owner.operands[0], depth + 1)
            return tuple(shares[int(axis)] for axis in match[1].split(","))
        return self._below(owner, shape) if owner.name == "arith.cmpi" and shape else whole

    def _below(self, node: Node, shape: tuple[int, ...]) -> tuple[float, ...]:
        """Return the share of a comparison of offsets, which differ along one axis, to a bound."""
        predicate = node.text.partition(",")[0].rpartition(" ")[2]
        offsets, bound = node.operands if predicate[1:2] == "l" else node.operands[::-1]
        steps, limit = self._steps(offsets), self._uniform(bound)
        axes = [axis for axis, step in enumerate(steps) if step != 0]
        step = steps[axes[0]] if len(axes) == 1 else None
        if predicate not in _ORDERED or limit is None or limit <= 0 or not step or step < 0:
            return (1.0,) * len(shape)
        kept = -(-(limit + predicate.endswith("e")) // step)
        tiles = -(-kept // shape[axes[0]])
        share = kept / (tiles * shape[axes[0]])
        return tuple(share if axis == axes[0] else 1.0 for axis in range(len(shape)))

    def _block_pointer(self, value: int, rank: int) -> Steps:
        sources = self._plan.tree.sources
        for reached in self._plan.flow.follow([value], _first):
            owner, _ = sources[reached]
            if isinstance(owner, Node) and owner.name == "tt.make_tensor_ptr":
                return tuple(map(self._number, owner.operands[1 + rank : 1 + 2 * rank]))
        return (None,) * rank

    def _steps(self, value: int) -> Steps:
        if value not in self._known:
            rank = len(self._plan.tree.type_of(value).shape)
            self._known[value] = (None,) * rank  # while it is computed, against cycles
            self._depth += 1
            if self._depth < _MAX_DEPTH:
                steps = self._compute(value)
                self._known[value] = steps if len(steps) == rank else (None,) * rank
            self._depth -= 1
        return self._known[value]

    def _compute(self, value: int) -> Steps:
        owner, _ = self._plan.tree.sources[value]
        if isinstance(owner, Body) or owner.regions:
            origins = self._plan.flow.origins(value)
            return self._steps(origins[0]) if origins else ()
        name, rank = owner.name, len(self._plan.tree.type_of(value).shape)
        if name == "tt.make_range":
            return (1,)
        if name in ("tt.splat", "arith.constant"):
            return (0,) * rank if name == "tt.splat" or DENSE(owner.text) else ()
        if name in _KEEPING or name in _CLAMPING:
            return self._steps(owner.operands[0])
        if name == "tt.expand_dims" and (match := AXIS(owner.text)):
            steps, axis = self._steps(owner.operands[0]), int(match[1])
            return (*steps[:axis], 0, *steps[axis:])
        if name == "tt.trans" and (match := ORDER(owner.text)):
            steps = self._steps(owner.operands[0])
            return tuple(steps[int(axis)] for axis in match[1].split(","))
        return self._combine(owner)

    def _combine(self, node: Node) -> Steps:
        if node.name in ("tt.addptr", "arith.addi"):
            return self._pair(node, lambda a, b: a + b)
        if node.name == "arith.subi":
            return self._pair(node, lambda a, b: a - b)
        if node.name == "arith.muli":
            first, second = node.operands
            return self._scaled(first, second) or self._scaled(second, first)
        if node.name == "arith.select":
            first_steps, second_steps = map(self._steps, node.operands[1:])
            return first_steps if first_steps == second_steps else ()
        if node.name.startswith(("arith.", "math.")):
            # Operands that are equal along an axis give results that are equal along it.
            axes = zip(*map(self._steps, node.operands), strict=False)
            return tuple(0 if not any(steps) and None not in steps else None for steps in axes)
        return ()

    def _pair(self, node: Node, combine: Callable[[int, int], int]) -> Steps:
        pairs = zip(*map(self._steps, node.operands[:2]), strict=False)
        return tuple(None if a is None or b is None else combine(a, b) for a, b in pairs)

    def _scaled(self, value: int, factor: int) -> Steps:
        if any(step != 0 for step in self._steps(factor)):
            return ()
        by = self._uniform(factor)
        return tuple(
            0 if step == 0 else None if step is None or by is None else step * by
            for step in self._steps(value)
        )

    def _uniform(self, value: int) -> int | None:
        """Return the number that all elements of a tensor equal; None if there is none."""
        owner, _ = self._plan.tree.sources[value]
        if isinstance(owner, Body):
            return None
        if owner.name == "arith.constant" and (match := DENSE(owner.text)):
            number = constant(f"{match[1]} : {match[2]}")
            return number if isinstance(number, int) else None
        if owner.name == "tt.splat":
            return self._number(owner.operands[0])
        return self._uniform(owner.operands[0]) if owner.name in _KEEPING else None

    def _number(self, value: int) -> int | None:
        number = self._scalar(value)
        return number if isinstance(number, int) else None

    def _scalar(self, value: int) -> Value:
        if value not in self._scalars:
            self._scalars[value] = Unknown("a cycle")
            self._scalars[value] = self._evaluate(value)
        return self._scalars[value]

    def _evaluate(self, value: int) -> Value:
        owner, place = self._plan.tree.sources[value]
        if isinstance(owner, Body):
            if owner is self._plan.tree.blocks[0]:
                return self._launch.values.get(place, Unknown("no value"))
            return Unknown("a loop's")
        if owner.name == "arith.constant":
            number = constant(owner.text)
            return Unknown("no number") if number is None else number
        if not owner.operands or owner.regions or len(self._scalars) > _MAX_DEPTH:
            return Unknown("no number")
        tree = self._plan.tree
        step = EvaluationStep(owner, tree.type_of(value), tree.type_of(owner.operands[0]))
        return apply(step, [self._scalar(operand) for operand in owner.operands])


def _first(node: Node) -> tuple[int, ...] | None:
    return None if node.regions else node.operands[:1]
