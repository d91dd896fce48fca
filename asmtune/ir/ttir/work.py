"""Work of a launch: loops, products, element-wise work, memory, arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from asmtune.ir.ttir.costs import Dot
from asmtune.ir.ttir.memory import Kind
from asmtune.ir.ttir.strides import Steps

_CONTROL: Final = {"scf.for": "a loop", "scf.while": "a while loop"}


@dataclass(frozen=True, slots=True)
class Assumption:
    """A loop or branch that cannot be evaluated, and what is assumed for it.

    As text: `line 9: a while loop that cannot be evaluated (computed by tt.reduce): 16 trips
    assumed`.

    Attributes:
        operation: "scf.for", "scf.while" for a loop, "scf.if" or "cf.cond_br" for a branch.
        loop: the loop's id, or None for a branch.
        reason: why, in words.
        assumed: what is assumed instead, in words.
        file: source file, or "".
        line: line of the source, 0 if unknown.
    """

    operation: str
    loop: int | None
    reason: str
    assumed: str
    file: str
    line: int

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        what = _CONTROL.get(self.operation, "a branch")
        return f"{where}{what} that cannot be evaluated ({self.reason}): {self.assumed} assumed"


@dataclass(frozen=True, slots=True)
class SteeringArgument:
    """An index tensor whose elements decide trips or branches.

    As text: `loops and branches that offset_ptr steers follow the values given with the problem`.

    Attributes:
        name: the parameter's name.
        source: where the elements that were evaluated come from; "" if they are assumed.
        reason: why they are assumed.
    """

    name: str
    source: str
    reason: str = ""

    def __str__(self) -> str:
        if self.source:
            return f"loops and branches that {self.name} steers follow {self.source}"
        return f"loops and branches that {self.name} steers are assumed: {self.reason}"


@dataclass(frozen=True, slots=True)
class LoopWork:
    """A loop of the kernel, calls expanded.

    Attributes:
        id: position in `Work.loops`; outer loops before inner ones, in the text's order.
        parent: id of the loop around it, or None.
        depth: 1 for an outermost loop.
        file: source file, or "".
        line: line of the source that opens it; 0 if the text does not tell.
        trips: mean trips of one entry, over the programs evaluated.
        least, most: fewest and most trips of one entry among them; 0 if never entered.
        entries: times that a program enters it, on average.
        num_stages: the loop's own pipeline depth (`tl.range(num_stages=)`), or None.
        unroll_factor: copies of its body that Triton makes (`loop_unroll_factor=`), or None;
            trips are those of the source.
        has_dot: whether a matrix product is in it, inner loops included.
    """

    id: int
    parent: int | None
    depth: int
    file: str
    line: int
    trips: float
    least: int
    most: int
    entries: float
    num_stages: int | None
    unroll_factor: int | None
    has_dot: bool

    @property
    def iterations(self) -> float:
        """Return the trips of one program in all, on average."""
        return self.trips * self.entries


@dataclass(frozen=True, slots=True)
class DotWork:
    """A matrix product of the text.

    Attributes:
        dot: shapes and element types; for scaled ones of unpacked numbers (`f4E2M1FN`).
        precision: how 32-bit floats are multiplied ("tf32", "ieee"), or "".
        loop: id of the innermost loop around it, or None.
        line: line of the source, 0 if unknown.
        runs: executions by one program, on average.
    """

    dot: Dot
    precision: str
    loop: int | None
    line: int
    runs: float

    @property
    def flops(self) -> float:
        """Return the multiplications and additions by one program, on average."""
        return self.dot.flops * self.runs


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """An operation that reads or writes memory.

    Attributes:
        kind: what it does.
        operation: its name ("tt.load").
        arguments: `ArgumentUse.index` of those that the address may come from.
        foreign: whether the address may belong to no argument, such as one kept in memory.
        elements: of the tile; parts that a mask leaves out are counted.
        element_bytes: of one element in memory.
        by_index: whether the address is computed from what the kernel loads.
        strides: elements between neighbours along each axis of the tile, 0 where all are the
            same, `Repeated` of a quotient, None where not known; empty for a single element.
        share: of the elements that bounds leave, on average over the programs; 1 where nothing
            tells.
        loop: id of the innermost loop around it, or None.
        line: line of the source, 0 if unknown.
        runs: executions by one program, on average.
        file: name of the line's file, if it is not the kernel's own; "" otherwise.
    """

    kind: Kind
    operation: str
    arguments: tuple[int, ...]
    foreign: bool
    elements: int
    element_bytes: int
    by_index: bool
    strides: Steps
    share: float
    loop: int | None
    line: int
    runs: float
    file: str = ""

    @property
    def bytes(self) -> float:
        """Return the bytes moved by one program, on average."""
        return self.elements * self.share * self.element_bytes * self.runs


@dataclass(frozen=True, slots=True)
class ArgumentUse:
    """Use of a pointer or descriptor argument anywhere in the kernel's code.

    What may happen counts, whether or not this launch comes to it.

    Attributes:
        name: the parameter's name; "" where the text does not tell it.
        index: position among the arguments in the text.
        reads: it is loaded from, or updated atomically.
        writes: it is stored to, or updated atomically.
        atomics: it is updated atomically.
        unknown_use: its address reaches an operation that may do anything with it; it then
            counts as read and written.
        read_bytes: bytes that the launch loads from it, however often the same.
        written_bytes: bytes that the launch stores to it.
        atomic_bytes: bytes of the launch's atomic updates.
        size_bytes: the memory behind it as the caller told, or None.
        end_bytes: bytes from its start to the end of the furthest access, as far as the text
            tells; 0 if it does not.
    """

    name: str
    index: int
    reads: bool
    writes: bool
    atomics: bool
    unknown_use: bool
    read_bytes: float
    written_bytes: float
    atomic_bytes: float
    size_bytes: int | None
    end_bytes: int = 0

    @property
    def unique_read_bytes(self) -> float:
        """Return the most different bytes read: the traffic, at most the memory's size."""
        return _at_most(self.read_bytes + self.atomic_bytes, self.size_bytes)

    @property
    def unique_written_bytes(self) -> float:
        """Return the most different bytes written."""
        return _at_most(self.written_bytes + self.atomic_bytes, self.size_bytes)


def _at_most(traffic: float, size: int | None) -> float:
    return traffic if size is None else min(traffic, size)


@dataclass(frozen=True)
class Work:
    """Work of one launch; means are over the programs evaluated, of equal weight.

    Attributes:
        name: the kernel's function.
        grid: programs along three axes.
        loops: its loops, outer before inner.
        dots: its matrix products.
        accesses: its loads, stores and atomics.
        arguments: its pointer and descriptor arguments.
        elements: tensor elements computed by one program, on average, by class: "float" (add,
            multiply, compare, select), "fma", "divide", "special" (exp, log, sqrt, libdevice),
            "convert", "integer", "reduce" and "scan" (elements that go in), "layout" (trans,
            reshape, gather), "asm" (inline assembly). Dead code is not counted, loop
            invariants once; integers are addresses mostly, and later passes simplify them.
        assumptions: what could not be evaluated.
        evaluated: how many programs were evaluated.
        exact: whether counts are exact: every program that differs and every trip was walked.
        state: what goes from step to step of a sequential loop on a small grid; None if every
            tile starts anew.
        barriers: barriers that one program asks for itself, on average.
        steering: index tensors that decide trips or branches, and where each is known from.
        foreign_places: where memory outside all arguments may be written, as `file:line`.
    """

    name: str
    grid: tuple[int, int, int]
    loops: tuple[LoopWork, ...]
    dots: tuple[DotWork, ...]
    accesses: tuple[MemoryAccess, ...]
    arguments: tuple[ArgumentUse, ...]
    elements: Mapping[str, float]
    assumptions: tuple[Assumption, ...]
    evaluated: int
    exact: bool
    barriers: float
    steering: tuple[SteeringArgument, ...] = ()
    foreign_places: tuple[str, ...] = ()

    @classmethod
    def unread(cls, grid: tuple[int, int, int]) -> Work:
        """Return the work of a launch of which only the grid is known."""
        return cls("", grid, (), (), (), (), {}, (), 0, False, 0.0)

    @property
    def programs(self) -> int:
        """Return the programs of the launch."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def unique_read_bytes(self) -> float:
        """Return the most different bytes read; of no known argument, all traffic counts."""
        return sum(use.unique_read_bytes for use in self.arguments) + self._foreign("read")

    @property
    def unique_written_bytes(self) -> float:
        """Return the most different bytes written; to no known argument, all traffic counts."""
        return sum(use.unique_written_bytes for use in self.arguments) + self._foreign("write")

    @property
    def foreign_writes(self) -> bool:
        """Return whether memory outside all arguments may be written."""
        return bool(self.foreign_places)

    def updates(self, operation: str) -> float:
        """Return how often the launch updates one address by an atomic operation, on average.

        Of several arguments the one that is updated most counts; 0 where no size is known.
        """
        sizes = {use.index: use.size_bytes or 0 for use in self.arguments}
        most = 0.0
        for item in self.accesses:
            size = sum(sizes.get(place, 0) for place in item.arguments)
            if item.operation == operation and size:
                most = max(most, self.programs * item.bytes / max(size, item.element_bytes))
        return most

    def _foreign(self, kind: Kind) -> float:
        own = (a.bytes for a in self.accesses if a.kind == kind and not a.arguments)
        return sum(own) * self.programs
