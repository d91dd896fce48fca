"""Places of accesses in memory: distances between a tile's neighbours, and the furthest byte."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from asmtune.ir.ttir.addresses import AddressReader, AddressSum, Index
from asmtune.ir.ttir.memory import MASKED, MemoryOperation, mask_of
from asmtune.ir.ttir.mlir_types import AXIS, DENSE, ORDER
from asmtune.ir.ttir.plan import EvaluationPlan, Flow
from asmtune.ir.ttir.scalars import constant
from asmtune.ir.ttir.tree import Body, Node

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Repeated(NamedTuple):
    """The step of a quotient, as of `k // 2` where two numbers are packed into a byte.

    Attributes:
        by: neighbours that are the same element; tiles are taken to begin at a multiple of it.
        step: elements from these to the next ones.
    """

    by: int
    step: int


Step = int | Repeated | None
"""Elements between neighbours along an axis; None where nothing tells."""


_Places = TypeVar("_Places", int, "NDArray[np.int64]")


def offset(step: int | Repeated, place: _Places) -> _Places:
    """Return the elements from the first of an axis to the one at a place, or at each of many."""
    return place // step.by * step.step if isinstance(step, Repeated) else place * step


_ORDERED: Final = ("slt", "sle", "ult", "ule", "sgt", "sge", "ugt", "uge")


Steps = tuple[Step, ...]

_KEEPING: Final = frozenset(
    {
        "tt.broadcast", "tt.bitcast", "arith.bitcast", "arith.extsi", "arith.extui",
        "arith.trunci", "arith.index_cast", "ttg.convert_layout", "gluon.set_auto_layout",
    }
)  # fmt: skip
# Wrapped or clamped offsets, as in `% M`: neighbours stay neighbours but at an edge.
_CLAMPING: Final = frozenset({"arith.remsi", "arith.remui", "arith.minsi", "arith.maxsi"})
_DIVIDING: Final = frozenset({"arith.divsi", "arith.divui", "arith.shrsi", "arith.shrui"})
_BITS: Final = 64
_MAX_DEPTH: Final = 200


class Strides:
    """Computes strides of tiles in memory, known where a launch's arguments determine them."""

    def __init__(self, plan: EvaluationPlan, reader: AddressReader) -> None:
        self._plan = plan
        self._reader = reader
        self._known: dict[int, Steps] = {}
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
        is_bound = predicate in _ORDERED and limit is not None and limit > 0
        if not is_bound or limit is None or not isinstance(step, int) or step <= 0:
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
            return self._pair(node, 1)
        if node.name == "arith.subi":
            return self._pair(node, -1)
        if node.name == "arith.muli":
            first, second = node.operands
            return self._scaled(first, second) or self._scaled(second, first)
        if node.name == "arith.select":
            first_steps, second_steps = map(self._steps, node.operands[1:])
            return first_steps if first_steps == second_steps else ()
        if node.name in _DIVIDING:
            return self._quotient(node)
        if node.name.startswith(("arith.", "math.")):
            # Operands that are equal along an axis give results that are equal along it.
            axes = zip(*map(self._steps, node.operands), strict=False)
            return tuple(0 if not any(steps) and None not in steps else None for steps in axes)
        return ()

    def _pair(self, node: Node, sign: int) -> Steps:
        pairs = zip(*map(self._steps, node.operands[:2]), strict=False)
        return tuple(_sum(first, _times(second, sign)) for first, second in pairs)

    def _scaled(self, value: int, factor: int) -> Steps:
        if any(step != 0 for step in self._steps(factor)):
            return ()
        by = self._uniform(factor)
        return tuple(_times(step, by) for step in self._steps(value))

    def _quotient(self, node: Node) -> Steps:
        value, divisor = node.operands[:2]
        by = self._uniform(divisor)
        if by is not None and node.name.startswith("arith.shr"):
            by = 1 << by if 0 <= by < _BITS else None
        shape = self._plan.tree.type_of(value).shape
        steps = (_over(step, by) for step in self._steps(value))
        return tuple(
            0 if isinstance(step, Repeated) and step.by >= size else step
            for step, size in zip(steps, shape, strict=False)
        )

    def _uniform(self, value: int) -> int | None:
        """Return the number that all elements of a tensor equal; None if they differ."""
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
        number = self._reader.value(value)
        return None if number is None or number.terms else number.known


def _first(node: Node) -> tuple[int, ...] | None:
    return None if node.regions else node.operands[:1]


def _times(step: Step, by: int | None) -> Step:
    if step == 0 or step is None:
        return step
    if by is None:
        return None
    return Repeated(step.by, step.step * by) if isinstance(step, Repeated) else step * by


def _sum(first: Step, second: Step) -> Step:
    """Return the step of a sum; None for sums of quotients whose neighbours differ in number."""
    if first is None or second is None:
        return None
    if first == 0 or second == 0:
        return second if first == 0 else first
    if isinstance(first, Repeated) and isinstance(second, Repeated) and first.by == second.by:
        return Repeated(first.by, first.step + second.step)
    if isinstance(first, Repeated) or isinstance(second, Repeated):
        return None
    return first + second


def _over(step: Step, by: int | None) -> Step:
    """Return the step of a quotient by a number; None if neighbours do not repeat evenly."""
    if step == 0 or step is None:
        return step
    if by is None or by <= 0:
        return None
    if isinstance(step, Repeated):
        if step.step % by == 0:
            return Repeated(step.by, step.step // by)
        return Repeated(step.by * by, 1) if step.step == 1 else None
    if step % by == 0:
        return step // by
    return Repeated(by // step, 1) if step > 0 and by % step == 0 else None


_PASSING: Final = frozenset(
    {"arith.andi", "tt.splat", "tt.broadcast", "tt.expand_dims", "arith.extsi",
     "ttg.convert_layout", "gluon.set_auto_layout"}
)  # fmt: skip
_WRAPPING: Final = frozenset({"arith.remsi", "arith.remui"})

Limits = dict[tuple[tuple[Index, int], ...], int]
"""Greatest values of sums that a mask allows, by their terms."""


class Extents:
    """Finds ends of accesses by their addresses as sums.

    Terms of a sum count as independent, so that only what differs by programs, tile axes and loops
    adds up.
    """

    def __init__(self, flow: Flow, reader: AddressReader, grid: tuple[int, int, int]) -> None:
        self._flow = flow
        self._reader = reader
        self._grid = grid

    def end(self, operation: MemoryOperation) -> int | None:
        """Return the bytes from an argument's start to the end of what an operation reaches.

        None where a mask sets other than upper limits, or an index is not known.
        """
        node, mask = operation.node, mask_of(operation.node)
        if node.name not in MASKED or len(operation.roots) != 1 or not self._always_runs(node.body):
            return None
        limits = {} if mask is None else self._limits(mask)
        address = self._reader.of(node.operands[0])
        if limits is None or address is None or self._wraps(node.operands[0]):
            return None
        if any(
            self._parts(address, axis) > size for axis, size in zip("xyz", self._grid, strict=True)
        ):
            return None
        furthest = self._furthest(address, limits)
        return None if furthest is None else max(0, furthest + 1) * operation.element_bytes

    def _always_runs(self, body: Body) -> bool:
        """Return whether the first program comes to a block, through loops alone."""
        owner = body.owner
        if owner is None:
            return body is self._flow.tree.blocks[0]
        is_loop = owner.name == "scf.for" and bool(self._reader.trips(owner))
        return is_loop and self._always_runs(owner.body)

    def _wraps(self, pointer: int) -> bool:
        """Return whether a tile's offsets are wrapped, which sums do not show."""
        tree = self._flow.tree
        reached = self._flow.computed_from([pointer])
        tiles = (tree.sources[value][0] for value in reached if tree.type_of(value).is_tensor)
        return any(isinstance(one, Node) and one.name in _WRAPPING for one in tiles)

    def _parts(self, address: AddressSum, axis: str) -> int:
        """Return the combinations of the indices that a program's index is divided into."""
        programs = (index for index, _ in address.terms if index.kind == "program")
        return math.prod(index.count or 0 for index in programs if index.name[0] == axis)

    def _reach(self, terms: Iterable[tuple[Index, int]]) -> int | None:
        """Return the greatest sum of terms; None if the count of one is not known."""
        terms = tuple(terms)
        loops = self._flow.tree.loops
        for index, _ in terms:
            if not index.count:
                return None
            if index.kind == "loop":  # counted for the first program
                low = self._reader.of(loops[int(index.name)].operands[0])
                if low is None or low.terms:
                    return None
        return AddressSum(terms=terms).greatest

    def _furthest(self, address: AddressSum, limits: Limits) -> int | None:
        """Return the greatest value of a sum under limits; None if one of its terms is unknown."""
        left, most = dict(address.terms), address.known
        for terms, limit in limits.items():
            reach = self._reach(terms)
            factors = {left[i] // s if i in left and left[i] % s == 0 else 0 for i, s in terms}
            if len(factors) == 1 and (factor := factors.pop()) > 0:
                most += factor * (limit if reach is None else min(limit, reach))
                left = {index: step for index, step in left.items() if index not in dict(terms)}
            elif reach is None or reach > limit:
                return None  # it limits what is no part of the address, and may still limit this
        rest = self._reach(left.items())
        return None if rest is None else most + rest

    def _limits(self, mask: int) -> Limits | None:
        """Return the limits that a mask sets; None if it is not of upper limits alone."""
        limits: Limits = {}
        masks, seen = [mask], {mask}
        while masks:
            owner, _ = self._flow.tree.sources[masks.pop()]
            if isinstance(owner, Body):
                return None
            if owner.name in _PASSING:
                masks += set(owner.operands) - seen
                seen.update(owner.operands)
                continue
            if owner.name != "arith.cmpi" or not owner.text.startswith("slt"):
                return None
            value, bound = map(self._reader.of, owner.operands)
            if value is None or bound is None or bound.terms:
                return None
            most = bound.known - 1 - value.known
            limits[value.terms] = min(most, limits.get(value.terms, most))
        return limits
