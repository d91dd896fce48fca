"""Sums of a segment while a kernel is walked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from asmtune.ir.asm.nvptx import OpClass
from asmtune.predict.features.chain import Action, InstructionStep, chain_cycles
from asmtune.predict.features.profile import Segment, Traffic


@dataclass(slots=True)
class Sums:
    """A segment under construction; counts are of a thread, as in `Segment`.

    Attributes:
        parent: position of the segment around it.
        depth: loops around its code, itself included.
        steps: for the chain of its latencies.
        written, read: whether shared memory was, since the last barrier.
        begins_writing: whether it is written before it is first read.
    """

    parent: int | None
    depth: int
    classes: Counter[OpClass] = field(default_factory=Counter)
    traffic: Counter[Traffic] = field(default_factory=Counter)
    flops: Counter[tuple[str, str]] = field(default_factory=Counter)
    operand_bytes: int = 0
    tma_bytes: int = 0
    lines: set[int] = field(default_factory=set)
    steps: list[InstructionStep] = field(default_factory=list)
    written: bool = False
    read: bool = False
    begins_writing: bool | None = None

    def snapshot(self) -> Sums:
        """Return a copy of the counts so far."""
        copied = Counter(self.classes), Counter(self.traffic), Counter(self.flops)
        return Sums(self.parent, self.depth, *copied)

    def add(self, cost: Mapping[OpClass, float], times: float = 1.0) -> None:
        """Add instructions."""
        for kind, number in cost.items():
            self.classes[kind] += number * times  # type: ignore[assignment]

    def move(self, traffic: Traffic, times: float) -> None:
        """Add memory instructions; their class follows from their space."""
        kind = OpClass.SHARED if traffic.space == "shared" else OpClass.GLOBAL
        if traffic.direction == "atomic":
            kind = OpClass.ATOMIC
        elif traffic.copies:
            kind = OpClass.ASYNC_COPY
        self.classes[kind] += times  # type: ignore[assignment]
        self.traffic[traffic] += times  # type: ignore[assignment]

    def move_shared(self, direction: str, size: int, line: int, times: float) -> None:
        """Add instructions that move `size` bytes a thread to or from shared memory."""
        self.move(Traffic("shared", direction, size, copies=False, line=line), times)

    def use_shared(self, direction: str) -> None:
        """Note a use of shared memory, after a barrier where warps could collide.

        As in Triton's membar pass, a barrier stands between a store and a load of the same
        buffer, and between a load and a store. Different buffers count as one.
        """
        if self.begins_writing is None:
            self.begins_writing = direction == "store"
        if (direction == "store" and self.read) or (direction == "load" and self.written):
            self.add_barrier()
        if direction == "store":
            self.written = True
        else:
            self.read = True

    def add_barrier(self) -> None:
        """Add a barrier of all warps."""
        self.classes[OpClass.BARRIER] += 1
        self.steps.append(InstructionStep(Action.BARRIER, (), (), 0.0))
        self.written = self.read = False

    def segment(self, warps: int, stages: int) -> Segment:
        """Return the segment, its counts rounded to whole instructions."""
        if self.depth and self.read and self.begins_writing:
            self.add_barrier()  # before the next trip writes what this one reads
        classes = {kind: round(number) for kind, number in self.classes.items()}
        traffic = {moved: max(1, round(number)) for moved, number in self.traffic.items()}
        return Segment(
            self.parent,
            True,
            self.depth,
            {kind: number for kind, number in classes.items() if number},
            traffic,
            dict(self.flops),
            self.operand_bytes,
            self.tma_bytes,
            frozenset(self.lines - {0}),
            chain_cycles(self.steps, warps, stages, repeats=self.parent is not None),
        )
