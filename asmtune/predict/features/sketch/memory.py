"""The sums of a segment, and memory operations: instructions and bytes a thread, by width."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.ttir.tree import Node
from asmtune.predict.features.chain import Action, InstructionStep, chain_cycles
from asmtune.predict.features.profile import Segment, Traffic
from asmtune.predict.features.sketch.demand import Run
from asmtune.predict.features.sketch.layouts import TensorLayout, kind_of, number, parent_of
from asmtune.predict.features.sketch.values import Kind, Values


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
        for kind, count in cost.items():
            self.classes[kind] += count * times  # type: ignore[assignment]

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

        As in Triton's membar pass, there is a barrier between a store and a load of the same
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


WIDEST: Final = 16
"""Bytes that one memory instruction of a thread moves at most."""

ROUND: Final = 4
"""Bytes of a shared memory word."""

_CONTIGUITY: Final = re.compile(r"contiguity = (\d+)").search
_BYTES: Final = re.compile(r", (\d+)\b").search


def vector_of(values: Values, node: Node) -> Run:
    """Return the axis and the elements that one instruction of a global access moves.

    Triton lays threads along the contiguous axis and gives each as many neighbours as
    addresses are known to be aligned, so that the width follows from the layout.
    """
    kind = values.kind(node.operands[0])
    if not kind.shape:
        return (-1, 1)
    layout, bits = values.layout(node.operands[0]), memory_bits(values, node)
    widest = max(1, WIDEST * 8 // bits)
    run = min(layout.width, widest)
    if match := _CONTIGUITY(node.text):
        run = min(run, max(1, int(match[1])))
    return (layout.fast, run)


def memory_bits(values: Values, node: Node) -> int:
    """Return the bits of one element in memory."""
    return pointee_bits(values.kind(node.operands[0]))


def pointee_bits(kind: Kind) -> int:
    """Return the bits in memory of one element behind an address."""
    match = re.match(r"!tt\.ptr<(.*)>", kind.element)
    inner = (match[1] if match else kind.element).partition(",")[0]
    digits = re.search(r"\d+", inner)
    bits = int(digits[0]) if digits and not inner.startswith("!tt.ptr") else 64
    return max(8, bits)


def add_access(sums: Sums, values: Values, node: Node, run: Run, line: int) -> None:
    """Count loads, stores, asynchronous copies and atomics of global memory."""
    kind = values.kind(node.operands[0])
    bits = memory_bits(values, node)
    axes = frozenset(range(len(kind.shape)))
    times = float(values.layout(node.operands[0]).distinct(axes, run)) if kind.shape else 1.0
    size = max(1, bits * run[1] // 8)
    if node.name.startswith("tt.atomic"):
        sums.move(Traffic("global", "atomic", max(1, bits // 8), copies=False, line=line), times)
    elif node.name == "tt.store":
        sums.move(Traffic("global", "store", size, copies=False, line=line), times)
        if bits < 32 and run[1] * bits >= 32:
            sums.add({OpClass.MOVE: times * size / ROUND})
    else:
        copies = node.name != "tt.load"
        sums.move(Traffic("global", "load", size, copies=copies, line=line), times)
        if copies:
            sums.add({OpClass.INTEGER: 0.5 * times})
        elif bits < 32:
            sums.add({OpClass.MOVE: times * run[1]})


def add_shared(
    sums: Sums, direction: str, layout: TensorLayout, kind: Kind, width: int, line: int
) -> None:
    """Count a move of a tile between registers of a layout and shared memory.

    One instruction of a thread moves at most `width` bytes.
    """
    held = layout.distinct(frozenset(range(len(kind.shape)))) * max(8, kind.bits) // 8
    size = max(1, min(width, held))
    sums.use_shared(direction)
    sums.move_shared(direction, size, line, max(1.0, held / size))


def shared_width(kind: Kind, layout: TensorLayout, buffer: str) -> int:
    """Return the bytes of one instruction between registers of a layout and a buffer.

    ldmatrix and stmatrix move 16 bytes a thread of 16-bit elements in the order of a
    tensor instruction's operand; else a thread's neighbours along the fast axis.
    """
    own = kind_of(kind.encoding)
    size = max(1, kind.bits // 8)
    if own == "dot_op" and kind_of(parent_of(kind.encoding)) == "nvidia_mma":
        return WIDEST if kind.bits == 16 or along_k(kind, buffer) else ROUND
    if own == "nvidia_mma" and kind.bits == 16:
        return WIDEST
    axis = fast_axis(buffer, len(kind.shape))
    return min(WIDEST, size * layout.run(axis))


def along_k(kind: Kind, buffer: str) -> bool:
    """Return whether an operand's K axis is the buffer's fast one, as ldmatrix needs it."""
    index = number(kind.encoding, "opIdx", 0)
    k = len(kind.shape) - (1 if index == 0 else 2)
    return fast_axis(buffer, len(kind.shape)) == k


def fast_axis(buffer: str, rank: int) -> int:
    """Return the axis along which neighbours lie beside each other in a buffer."""
    if match := re.search(r"order = \[(\d+)", buffer):
        return min(int(match[1]), rank - 1)
    return max(0, rank - 2) if "transposed = true" in buffer else rank - 1


def expected_bytes(node: Node) -> int:
    """Return the bytes that a barrier of TMA copies waits for."""
    match = _BYTES(node.text)
    return int(match[1]) if match else 0
