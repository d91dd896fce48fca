"""Counts over a program: instructions, FLOPs and bytes, each by loop depth.

Counts are static: one for each instruction of the text. Depth 0 is outside all loops; a
caller weighs depth d by the trips of the loops around it. Loops that only wait for a
barrier add no depth, see `asmtune.ir.asm.program.LoopRole`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.ir.asm.flow import Dominators
from asmtune.ir.asm.memory import AsmAccess, Direction, Space, access
from asmtune.ir.asm.nvptx import OpClass, classify, is_switch_barrier
from asmtune.ir.asm.program import AsmFunction, Instruction, Listing, Loop
from asmtune.ir.asm.tensor import TensorKind, TensorOp, tensor_ops

_NAMED_BARRIER = re.compile(r"\d+\s*,\s*(\d{1,4})")
_WARP = 32


def block_threads(program: AsmFunction) -> tuple[int | None, ...]:
    """Return for each block how many threads of a CTA run it; None if not known.

    Triton gives each part of a warp-specialised kernel (load, multiply, store) warps of its own.
    All instructions are in one program, and the blocks of the parts are in a `dispatch` loop, so
    counts of a part must be scaled by its own threads, not by the CTA's.

    Without warp specialisation all threads run all blocks. With it, a part starts at a
    block that passes the switch barrier and holds the blocks dominated by it. Its threads
    are those that its own barriers (`bar.sync id, threads`) name; a part of one warp has
    only `bar.warp.sync`. Blocks outside the dispatch loop belong to the default part.
    """
    inside = {block for loop in program.loops if loop.role == "dispatch" for block in loop.blocks}
    if not inside:
        return (program.threads,) * len(program.blocks)
    parts = _parts(program, inside)
    threads: list[int | None] = [None] * len(program.blocks)
    default = [block for block in range(len(program.blocks)) if block not in inside]
    for blocks in (default, *parts):
        count = _barrier_threads(program, blocks)
        for block in blocks:
            threads[block] = count
    return tuple(threads)


def _parts(program: AsmFunction, inside: set[int]) -> list[list[int]]:
    tree = Dominators([block.successors for block in program.blocks])
    headers = {loop.header for loop in program.loops if loop.role == "dispatch"}
    meets = sorted(
        block
        for block in inside - headers
        if any(is_switch_barrier(item) for item in program.body(block))
    )
    # A part meets the barrier at its start and again at its end: only the first starts one.
    starts = [
        block
        for block in meets
        if not any(other != block and tree.dominates(other, block) for other in meets)
    ]
    return [[block for block in inside if tree.dominates(start, block)] for start in starts]


def _barrier_threads(program: AsmFunction, blocks: list[int]) -> int | None:
    named: Counter[int] = Counter()
    by_warp = False
    for block in blocks:
        for item in program.body(block):
            if item.opcode == "bar.warp.sync":
                by_warp = True
            elif item.opcode in ("bar.sync", "barrier.sync") and (
                match := _NAMED_BARRIER.fullmatch(item.text)
            ):
                named[int(match[1])] += 1
    if named:
        return named.most_common(1)[0][0]
    return _WARP if by_warp else None


ByDepth = Mapping[int, int]
"""An amount for each loop depth; depths with none are left out."""

MNEMONICS = (
    "mma.sync",
    "wgmma.mma_async",
    "tcgen05.mma",
    "cp.async",
    "cp.async.bulk",
    "bar.sync",
    "barrier.sync",
    "bra",
    "ret",
)
"""Prefixes that `mnemonic_counts` counts."""

_MOVES_DATA = frozenset(
    {
        OpClass.ASYNC_COPY,
        OpClass.BULK_COPY,
        OpClass.TENSOR_MEMORY,
        OpClass.GLOBAL,
        OpClass.SHARED,
        OpClass.LOCAL,
        OpClass.CONSTANT,
        OpClass.ATOMIC,
    }
)


@dataclass(frozen=True, slots=True)
class Counts:
    """Static counts of a program or of some of its blocks.

    Attributes:
        instructions: all instructions.
        by_class: instructions of each class.
        cta_flops: tensor FLOPs of each kind by a CTA: each instruction times the units
            among the threads that run it; those whose shape or threads the text does not tell
            are missing.
        thread_bytes: bytes that one thread moves, by memory space and direction.
    """

    instructions: ByDepth
    by_class: Mapping[OpClass, ByDepth]
    cta_flops: Mapping[TensorKind, ByDepth]
    thread_bytes: Mapping[tuple[Space, Direction], ByDepth]

    def total(self, kind: OpClass) -> int:
        """Return how many instructions of a class there are at all depths."""
        return sum(self.by_class.get(kind, {}).values())


class _Tally:
    def __init__(self) -> None:
        self.cta_flops: dict[TensorKind, Counter[int]] = defaultdict(Counter)
        self.bytes: dict[tuple[Space, Direction], Counter[int]] = defaultdict(Counter)

    def add_tensor(self, op: TensorOp, depth: int, threads: int | None) -> None:
        needed = threads if op.unit_threads is not None else threads or 1
        cta_flops = None if needed is None else op.flops_per_cta(needed)
        if cta_flops is not None:
            self.cta_flops[op.kind][depth] += cta_flops

    def add_traffic(self, moved: AsmAccess | None, depth: int) -> None:
        if moved is not None and moved.bytes is not None:
            self.bytes[moved.space, moved.direction][depth] += moved.bytes


@dataclass(frozen=True)
class InstructionSet:
    """Readers of an instruction set's instructions.

    Attributes:
        class_of: the class of an opcode.
        access: an instruction's memory access.
        tensor_ops: a program's matrix instructions, by index.
        threads: for each block how many threads of a CTA run it.
    """

    class_of: Callable[[str], OpClass]
    access: Callable[[Instruction], AsmAccess | None]
    tensor_ops: Callable[[AsmFunction], Mapping[int, TensorOp]]
    threads: Callable[[AsmFunction], Sequence[int | None]]


PTX: Final = InstructionSet(classify, access, tensor_ops, block_threads)


def count(
    program: AsmFunction, blocks: Iterable[int] | None = None, isa: InstructionSet = PTX
) -> Counts:
    """Count what a program does in these blocks, such as a loop's; None for all."""
    chosen = range(len(program.blocks)) if blocks is None else sorted(set(blocks))
    ops = isa.tensor_ops(program)
    threads = isa.threads(program) if ops else ()
    opcodes: Counter[tuple[str, int]] = Counter()
    sums = _Tally()
    for block in chosen:
        depth = program.block_depths[block]
        for item in program.body(block):
            opcodes[item.opcode, depth] += 1
            if item.index in ops:
                sums.add_tensor(ops[item.index], depth, threads[block])
            elif isa.class_of(item.opcode) in _MOVES_DATA:
                sums.add_traffic(isa.access(item), depth)
    return _finish(opcodes, sums, isa.class_of)


def _finish(
    opcodes: Mapping[tuple[str, int], int], sums: _Tally, class_of: Callable[[str], OpClass]
) -> Counts:
    totals: Counter[int] = Counter()
    by_class: dict[OpClass, Counter[int]] = defaultdict(Counter)
    for (opcode, depth), number in opcodes.items():
        totals[depth] += number
        by_class[class_of(opcode)][depth] += number
    return Counts(
        instructions=dict(totals),
        by_class={kind: dict(depths) for kind, depths in by_class.items()},
        cta_flops={kind: dict(depths) for kind, depths in sums.cta_flops.items()},
        thread_bytes={key: dict(depths) for key, depths in sums.bytes.items()},
    )


def hottest_loop(
    program: AsmFunction,
    class_of: Callable[[str], OpClass] = classify,
    times: Sequence[float] | None = None,
) -> Loop | None:
    """Return the loop where the work is: the deepest `work` loop, or None without one.

    Among equally deep ones a loop with tensor instructions wins, then the longest; where it is
    known how often they run, the one that executes most instructions (causal attention has a
    long loop that runs twice, for the diagonal, beside a short one that runs on).

    `class_of` classifies the opcodes, as PTX by default; `times` are executions of each loop.
    """
    tensor_blocks = {
        block
        for block in range(len(program.blocks))
        if any(class_of(item.opcode) is OpClass.TENSOR for item in program.body(block))
    }

    def rank(position: int) -> tuple[int, bool, float]:
        loop = program.loops[position]
        size = sum(len(program.body(block)) for block in loop.blocks)
        executed = size * (1.0 if times is None else times[position])
        return loop.depth, not tensor_blocks.isdisjoint(loop.blocks), executed

    working = (at for at, loop in enumerate(program.loops) if loop.role == "work")
    best = max(working, key=rank, default=None)
    return None if best is None else program.loops[best]


def mnemonic_counts(listing: Listing) -> dict[str, int]:
    """Count the `MNEMONICS` over the whole text, all functions and depths alike.

    An opcode counts for the longest prefix that it has: `cp.async` is the copies with
    their commit_group and wait_group, without those of cp.async.bulk.
    """
    totals = dict.fromkeys(MNEMONICS, 0)
    longest_first = sorted(MNEMONICS, key=len, reverse=True)
    opcodes = Counter(item.opcode for program in listing.programs for item in program.instructions)
    for opcode, number in opcodes.items():
        prefix = next((name for name in longest_first if f"{opcode}.".startswith(f"{name}.")), None)
        if prefix is not None:
            totals[prefix] += number
    return totals
