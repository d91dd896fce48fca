"""Instructions, traffic and FLOPs of a compiled config by loop, independent of the launch.

A profile is made in the worker that compiled and is small; the assembly is not sent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from asmtune.ir.asm.counts import PTX, InstructionSet
from asmtune.ir.asm.memory import expected_bytes
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.asm.program import AsmFunction
from asmtune.ir.asm.tensor import TensorOp
from asmtune.predict.features.requests import BankWays, Requests

ROW_BYTES: Final = 32
"""Bytes of K that one tensor instruction of sm_90 and newer takes a row: 256 bits."""

_THREAD_CLASSES: Final = frozenset(
    {OpClass.GLOBAL, OpClass.SHARED, OpClass.ASYNC_COPY, OpClass.ATOMIC}
)


@dataclass(frozen=True, slots=True)
class Traffic:
    """A kind of memory instruction of a segment.

    Attributes:
        space: "global" (generic accesses included) or "shared".
        direction: "load", "store" or "atomic".
        bytes: a thread and execution.
        copies: whether it goes to shared memory and not to a register.
        line: of the source, 0 if unknown.
    """

    space: str
    direction: str
    bytes: int
    copies: bool
    line: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Code that runs equally often: what is outside all loops, or one loop's own blocks.

    Attributes:
        parent: position of the segment around it; None for the outermost.
        is_work: True if its trips depend on the data; other segments run once an entry.
        depth: loops around it that work, itself included.
        classes: instructions a thread, by `OpClass`.
        traffic: memory instructions a thread, with how many of each.
        flops: tensor FLOPs a program, by (kind, operand type).
        operand_bytes: of shared memory that tensor instructions read themselves.
        tma_bytes: that bulk copies bring, a program.
        lines: source lines that its instructions come from.
        chain: cycles of one pass by a warp alone on its SM; for a loop, of a late trip.
    """

    parent: int | None
    is_work: bool
    depth: int
    classes: Mapping[OpClass, int]
    traffic: Mapping[Traffic, int]
    flops: Mapping[tuple[str, str], int]
    operand_bytes: int
    tma_bytes: int
    lines: frozenset[int]
    chain: float = 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """A compiled config without its assembly.

    Attributes:
        segments: the outermost first, then one a loop; parents before children.
        num_warps: warps a program.
        num_stages: as compiled.
        static: the features that need no launch, by name.
        requests: how the lanes of a warp lie over tiles in global memory, by line and direction.
        bank_ways: conflicts of banks, by line and direction; absent without any.
    """

    segments: tuple[Segment, ...]
    num_warps: int
    num_stages: int
    static: Mapping[str, float]
    requests: Requests = field(default_factory=dict)
    bank_ways: BankWays = field(default_factory=dict)


def segments(
    program: AsmFunction,
    chains: Mapping[int | None, float],
    isa: InstructionSet = PTX,
    threads: Sequence[int | None] | None = None,
) -> tuple[Segment, ...]:
    """Cut a kernel into segments.

    Args:
        program: its instructions.
        chains: cycles of one pass over each loop, as `program_chains` returns them.
        isa: readers of its instructions.
        threads: that run each block; None to read them off the program.
    """
    reader = _SegmentReader(program, isa, threads or isa.threads(program))
    blocks: dict[int | None, list[int]] = {None: []}
    for block, loop in enumerate(program.innermost_loops):
        blocks.setdefault(loop, []).append(block)
    parts = [replace(reader.segment(blocks[None]), chain=chains.get(None, 0.0))]
    for position, around in enumerate(program.loops):
        part = replace(
            reader.segment(blocks.get(position, [])),
            parent=0 if around.parent is None else around.parent + 1,
            is_work=around.role == "work",
            depth=around.depth,
            chain=chains.get(position, 0.0),
        )
        parts.append(part)
    return tuple(parts)


class _SegmentReader:
    def __init__(
        self, program: AsmFunction, isa: InstructionSet, threads: Sequence[int | None]
    ) -> None:
        self._program, self._isa, self._threads = program, isa, threads
        self._ops = isa.tensor_ops(program)

    def segment(self, blocks: Iterable[int]) -> Segment:
        """Sum up blocks, as if they were outside all loops."""
        classes: Counter[OpClass] = Counter()
        traffic: Counter[Traffic] = Counter()
        flops: Counter[tuple[str, str]] = Counter()
        operand_bytes = tma_bytes = 0
        lines = set()
        for block, item in ((b, item) for b in blocks for item in self._program.body(b)):
            kind = self._isa.class_of(item.opcode)
            classes[kind] += 1
            line = item.source[1] if item.source else 0
            lines.add(line)
            op = self._ops.get(item.index)
            if op is not None:
                running = self._threads[block] or 32
                flops[op.kind, op.a_type or "f16"] += op.flops_per_cta(running) or 0
                operand_bytes += _operand_bytes(op, item.text, running)
            elif kind in _THREAD_CLASSES:
                moved = self._isa.access(item)
                if moved is not None and moved.bytes:
                    space = "global" if moved.space == "generic" else moved.space
                    traffic[Traffic(space, moved.direction, moved.bytes, moved.copies, line)] += 1
            elif kind is OpClass.MBARRIER:
                tma_bytes += expected_bytes(item) or 0
        counted = dict(classes), dict(traffic), dict(flops)
        own = frozenset(lines - {0})
        return Segment(None, True, 0, *counted, operand_bytes, tma_bytes, own)


_REGISTERS_AS_A: Final = re.compile(r"^\s*\{[^}]*\},\s*\{")


def _operand_bytes(op: TensorOp, text: str, threads: int) -> int:
    """Return the shared memory that wgmma and tcgen05 read: K is 32 bytes, A has M rows, B N."""
    if op.kind not in ("wgmma", "tcgen05") or op.n is None:
        return 0
    units = max(1, threads // 128) if op.kind == "wgmma" else 1
    from_registers = op.kind == "wgmma" and _REGISTERS_AS_A.match(text) is not None
    rows = (0 if from_registers else op.m or 64) + op.n
    return rows * ROW_BYTES * units
