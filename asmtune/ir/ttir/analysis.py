"""Count the work of a launch, from TTIR text and the launch's arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from asmtune.ir.ttir.addresses import AddressReader
from asmtune.ir.ttir.arguments import Parameter, bind
from asmtune.ir.ttir.costs import (
    BARRIERS,
    PRODUCTS,
    Dot,
    Placement,
    class_of,
    element_count,
    read_dot,
)
from asmtune.ir.ttir.evaluate import (
    BLOCKS,
    DEFAULT_TRIPS,
    PROBE,
    ExecutionCounts,
    ProgramArguments,
    ProgramEvaluator,
)
from asmtune.ir.ttir.loops import (
    apply_trip_corrections,
    describe_assumptions,
    describe_loops,
    trip_corrections,
)
from asmtune.ir.ttir.memory import (
    MemoryOperation,
    escapes,
    foreign_writes,
    memory_operations,
    other_file,
    steering_loads,
)
from asmtune.ir.ttir.parser import parse_ttir, well_formed
from asmtune.ir.ttir.plan import EvaluationPlan
from asmtune.ir.ttir.slots import ConfigSlots, SlotFinder
from asmtune.ir.ttir.strides import Extents, Strides
from asmtune.ir.ttir.tree import Node, build_tree
from asmtune.ir.ttir.work import ArgumentUse, DotWork, MemoryAccess, SteeringArgument, Work

if TYPE_CHECKING:
    from asmtune.ir.ttir.tiles import IndexTable

SAMPLE: Final = 64
"""Most programs evaluated of a kernel whose loops must be walked, besides corners of the grid."""
SIMPLE_SAMPLE: Final = 256
"""Most programs evaluated of a kernel without such loops."""
_GOLDEN: Final = (math.sqrt(5) - 1) / 2

DATA_SAMPLE: Final = 1024
"""Most programs evaluated of a kernel that data steers, up to 100 us each: their trips vary, and
another tile is another sample of them."""
_DATA_BLOCKS: Final = 1 << 14
"""Blocks of code that such programs may run in all before they are fewer than that."""

Program = tuple[int, int, int]


def sample(
    grid: Program, axes: Iterable[int], limit: int = SAMPLE
) -> tuple[list[Program], list[Program]]:
    """Return programs that represent a grid, and the grid's corners for the extremes.

    Programs have equal weight, and differ along `axes` only. If the grid has more than `limit`, it
    is cut into `limit` equal spans and one program is taken from each, at a place that follows the
    golden ratio, so that no period of the grid meets them all alike. Only then there are corners.
    """
    sizes = [size if axis in axes else 1 for axis, size in enumerate(grid)]
    total = math.prod(sizes)
    if total <= limit:
        return [_program(place, sizes) for place in range(total)], []
    chosen = [int((place + (place * _GOLDEN) % 1.0) * total / limit) for place in range(limit)]
    corners = product(*[sorted({0, size - 1}) for size in sizes])
    return [_program(place, sizes) for place in chosen], [(x, y, z) for x, y, z in corners]


def _program(place: int, sizes: list[int]) -> Program:
    x, y, _ = sizes
    return place % x, place // x % y, place // (x * y)


TRIP_BUDGET: Final = 8192
"""Most trips walked, over all programs, in loops whose trips differ; more are sampled."""


@dataclass(frozen=True)
class LaunchArguments:
    """Everything about a launch that its work depends on.

    Attributes:
        arguments: values by parameter name, in the order of the kernel's parameters: numbers,
            tuples, tensor descriptors (with `shape` and `strides`); all else is ignored, so
            that constexprs and tensors may be among them.
        grid: programs along three axes.
        tensor_bytes: memory behind pointers and descriptors by parameter name, where known.
        default_trips: trips of a loop that cannot be evaluated.
        read_table: gives what is in the memory of an index tensor, by the parameter's name, or
            says in words why that is not known; called for tensors that steer the kernel.
    """

    arguments: Mapping[str, Any]
    grid: tuple[int, int, int]
    tensor_bytes: Mapping[str, int] = field(default_factory=dict)
    default_trips: int = DEFAULT_TRIPS
    read_table: Callable[[str], IndexTable | str] = lambda _: "no values are given"


class Kernel:
    """A TTIR text, before or after Triton's passes, parsed once for any number of launches.

    Attributes:
        tree: its operations.
        placement: which of them are live, and where they run.
        operations: those that read or write memory.

    Raises:
        ParseError: the text is not TTIR.
    """

    def __init__(self, ttir: str) -> None:
        with well_formed():
            plan = EvaluationPlan(build_tree(parse_ttir(ttir), predicated=True))
            self._plans = {plan.loads: plan}
            self._flow = plan.flow
            self.tree = plan.tree
            self.placement = Placement(plan.flow)
            self.operations = memory_operations(plan.flow)
            self._steering = steering_loads(plan.flow, self.operations)
            self._escapes = escapes(plan.flow)

    def work(self, call: LaunchArguments) -> Work:
        """Return the work that a launch asks for.

        Raises:
            ParseError: the operations of the text do not fit together.
        """
        with well_formed():
            module = self._flow.tree.module
            parameters = bind(module, call.arguments, call.tensor_bytes)
            tables, steering = self._tables(parameters, call)
            plan = self._plan(frozenset().union(*(self._steering[place] for place in tables)))
            launch = _Launch(call, parameters, tables, steering)
            work = _Count(plan, self.placement, self.operations, launch).work(self._escapes)
            return replace(work, foreign_places=self.foreign_places)

    @cached_property
    def dots(self) -> tuple[Dot, ...]:
        """Return its matrix products, those of called functions included."""
        products = (node for node in self.tree.nodes() if node.name in PRODUCTS)
        return tuple(read[0] for read in map(read_dot, products) if read is not None)

    @cached_property
    def foreign_places(self) -> tuple[str, ...]:
        """Return where memory outside all arguments may be written, as `file:line`."""
        nodes = foreign_writes(self._flow, self.operations)
        positions = ((node, self.tree.line_of(node)) for node in nodes)
        places = (f"{at[0]}:{at[1]}" if at else node.name for node, at in positions)
        return tuple(dict.fromkeys(places))

    def slots(self, call: LaunchArguments) -> ConfigSlots:
        """Return the slots of arguments that the programs of a launch write; raises as `work`."""
        with well_formed():
            module = self._flow.tree.module
            parameters = bind(module, call.arguments, call.tensor_bytes)
            operations, placement = self.operations, self.placement
            return SlotFinder(self._flow, operations, placement, parameters, call.grid).slots()

    def _tables(
        self, parameters: Sequence[Parameter], call: LaunchArguments
    ) -> tuple[dict[int, IndexTable], tuple[SteeringArgument, ...]]:
        """Return what the memory that steers the kernel holds, and where each is known from."""
        tables: dict[int, IndexTable] = {}
        steering = []
        for place in sorted(self._steering):
            name = parameters[place].name
            table = call.read_table(name)
            if isinstance(table, str):
                steering.append(SteeringArgument(name, "", table))
            else:
                tables[place] = table
                steering.append(SteeringArgument(name, table.source))
        return tables, tuple(steering)

    def _plan(self, loads: frozenset[int]) -> EvaluationPlan:
        if loads not in self._plans:
            self._plans[loads] = EvaluationPlan(self._flow.tree, loads, self._flow)
        return self._plans[loads]


def analyse(ttir: str, call: LaunchArguments) -> Work:
    """Return the work that a launch of a kernel asks for, from its text; see `Kernel`.

    Raises:
        ParseError: the text is not TTIR.
    """
    return Kernel(ttir).work(call)


@dataclass(frozen=True)
class _Launch:
    call: LaunchArguments
    parameters: list[Parameter]
    tables: Mapping[int, IndexTable]
    steering: tuple[SteeringArgument, ...]

    def programs(self) -> ProgramArguments:
        """Return what its programs are given."""
        values = {place: bound.value for place, bound in enumerate(self.parameters)}
        starts = {}
        if self.tables:
            from asmtune.ir.ttir.tiles import start_of  # numpy, for kernels that data steers

            starts = {place: start_of(table) for place, table in self.tables.items()}
        return ProgramArguments(values, self.call.grid, self.call.default_trips, starts)


class _Count:
    def __init__(
        self,
        plan: EvaluationPlan,
        placement: Placement,
        operations: list[MemoryOperation],
        launch: _Launch,
    ) -> None:
        call = launch.call
        self._plan = plan
        self._placement = placement
        self._operations = operations
        self._call = call
        self._parameters = launch.parameters
        self._steering = launch.steering
        self._launch = launch.programs()
        self._counts = ExecutionCounts.of(plan)
        self._programs, corners = sample(call.grid, plan.axes, self._sample_size())
        self._sampled = bool(corners)
        machine = ProgramEvaluator(plan, self._launch, self._counts)
        room = max(16, TRIP_BUDGET // len(self._programs))
        blocks = BLOCKS // len(self._programs)
        for program in self._programs:
            machine.run(program, 1.0, room, blocks)
        for program in corners:
            machine.run(program, 0.0, room, blocks)
        self._reader = AddressReader(plan.flow, self._parameters, call.grid)
        self._extents = Extents(plan.flow, self._reader, call.grid)
        self._runs = self._spread()
        self._correct_unknown_trips()

    def _sample_size(self) -> int:
        """Return how many programs to evaluate at most: of cheap ones that data steers more."""
        least = SIMPLE_SAMPLE if self._plan.is_simple else SAMPLE
        if not self._plan.loads:
            return least
        machine = ProgramEvaluator(self._plan, self._launch, ExecutionCounts.of(self._plan))
        trial, _ = sample(self._call.grid, self._plan.axes, 4)
        used = max(machine.run(program, 0.0, 2 * PROBE, _DATA_BLOCKS) for program in trial)
        return min(DATA_SAMPLE, max(SAMPLE, _DATA_BLOCKS // used))

    def _correct_unknown_trips(self) -> None:
        if any(node.loop >= 0 for node, _ in self._counts.unknown.values()):
            programs = math.prod(self._call.grid)
            sizes = {place: bound.size_bytes for place, bound in enumerate(self._parameters)}
            factors = trip_corrections(self._plan, self._counts, self._accesses(), sizes, programs)
            apply_trip_corrections(self._plan, self._counts, self._runs, factors)

    def work(self, escaped: set[int]) -> Work:
        accesses = self._accesses()
        arguments = tuple(
            self._argument(place, bound, accesses, place in escaped)
            for place, bound in enumerate(self._parameters)
            if bound.is_memory
        )
        counts, plan = self._counts, self._plan
        assumptions = describe_assumptions(plan, counts, self._launch)
        elements, barriers = self._elements()
        return Work(
            name=plan.tree.kernel.name,
            grid=self._call.grid,
            loops=describe_loops(plan, counts, len(self._programs)),
            dots=self._dots(),
            accesses=accesses,
            arguments=arguments,
            elements=elements,
            assumptions=assumptions,
            evaluated=len(self._programs),
            exact=not (self._sampled or assumptions or counts.capped),
            barriers=barriers,
            steering=self._steering,
        )

    def _spread(self) -> list[float]:
        """Return the runs of each block by one program; element functions run once an element."""
        runs = [count / len(self._programs) for count in self._counts.runs]
        for body in self._plan.tree.bodies:
            owner = body.owner
            if owner is not None and owner.name == "tt.map_elementwise":
                tile = self._plan.tree.type_of(owner.results[0])
                runs[body.index] = runs[owner.body.index] * tile.elements
        return runs

    def _place(self, node: Node) -> tuple[int | None, int, float]:
        """Return innermost loop, source line and runs of an operation, invariants moved out."""
        home = self._placement.home(node)
        position = self._plan.tree.line_of(node)
        line = position[1] if position else 0
        return self._plan.tree.enclosing_loop(home), line, self._runs[home.index]

    def _accesses(self) -> tuple[MemoryAccess, ...]:
        strides = Strides(self._plan, self._reader)
        accesses = []
        for operation in self._operations:
            if self._placement.is_live(operation.node):
                loop, line, runs = self._place(operation.node)
                accesses.append(
                    MemoryAccess(
                        kind=operation.kind,
                        operation=operation.node.name,
                        arguments=operation.roots,
                        foreign=operation.foreign,
                        elements=operation.elements,
                        element_bytes=operation.element_bytes,
                        by_index=operation.by_index,
                        strides=strides.of(operation),
                        share=strides.share(operation),
                        loop=loop,
                        line=line,
                        runs=runs,
                        file=other_file(self._plan.tree, operation.node),
                    )
                )
        return tuple(accesses)

    def _dots(self) -> tuple[DotWork, ...]:
        dots = []
        for node in self._plan.tree.nodes():
            read = read_dot(node) if node.name in PRODUCTS else None
            if read is not None and self._placement.is_live(node):
                loop, line, runs = self._place(node)
                dots.append(DotWork(*read, loop, line, runs))
        return tuple(dots)

    def _elements(self) -> tuple[dict[str, float], float]:
        elements: dict[str, float] = {}
        barriers = 0.0
        placement, runs = self._placement, self._runs
        for node in self._plan.tree.nodes():
            owner = node.body.owner
            inner = owner is not None and owner.name == "tt.map_elementwise"
            kind = class_of(node)
            if kind is not None and placement.is_live(node):
                if count := element_count(node) or int(inner):
                    home = placement.home(node).index
                    elements[kind] = elements.get(kind, 0.0) + count * runs[home]
            elif node.name in BARRIERS:
                barriers += runs[node.body.index]
        return elements, barriers

    def _argument(
        self, place: int, bound: Parameter, accesses: tuple[MemoryAccess, ...], escapes_: bool
    ) -> ArgumentUse:
        kinds = {operation.kind for operation in self._operations if place in operation.roots}
        own = [one for one in self._operations if bound.size_bytes and one.roots == (place,)]
        bytes_by_kind = {"read": 0.0, "write": 0.0, "atomic": 0.0}
        x, y, z = self._call.grid
        for access in accesses:
            if place in access.arguments:
                # If the address may belong to one of several arguments, each gets its share.
                bytes_by_kind[access.kind] += access.bytes * x * y * z / len(access.arguments)
        return ArgumentUse(
            name=bound.name,
            index=place,
            reads="read" in kinds or "atomic" in kinds or escapes_,
            writes="write" in kinds or "atomic" in kinds or escapes_,
            atomics="atomic" in kinds,
            unknown_use=escapes_,
            read_bytes=bytes_by_kind["read"],
            written_bytes=bytes_by_kind["write"],
            atomic_bytes=bytes_by_kind["atomic"],
            size_bytes=bound.size_bytes,
            end_bytes=max((self._extents.end(one) or 0 for one in own), default=0),
        )
