"""Conflicts of shared memory's banks: what they add to a program, by line of the source."""

from __future__ import annotations

from dataclasses import dataclass

from asmtune.predict.features.execution import executions
from asmtune.predict.features.profile import Profile
from asmtune.predict.features.sketch.moves import shared_moves
from asmtune.predict.why.access import KernelAccesses


@dataclass(frozen=True)
class BankConflict:
    """A load or store of shared memory whose lanes meet in banks.

    Attributes:
        line: of the source.
        direction: "load", "store", or "copy" for an asynchronous copy into it.
        width: bytes of a thread's instruction.
        passes, least: times that the memory is read for an instruction, and without conflicts.
        cycles: that the conflicts add to one program.
    """

    line: int
    direction: str
    width: int
    passes: int
    least: int
    cycles: float

    def __str__(self) -> str:
        words = {"load": "load from", "store": "store to", "copy": "copy into"}[self.direction]
        return (
            f"line {self.line}: {words} shared memory, {self.width} B a thread: {self.passes} "
            f"passes a warp's instruction where {self.least} would do"
        )


def bank_conflicts(accesses: KernelAccesses, stages: int) -> tuple[BankConflict, ...]:
    """Return the conflicts of a config, the costliest first; loops run as the launch has it."""
    kernel, values = accesses.kernel, accesses.kernel.values
    segments = tuple(sums.segment(values.num_warps, stages) for sums in kernel.sums)
    runs = executions(Profile(segments, values.num_warps, stages, {}), accesses.work)
    conflicts: dict[tuple[int, str], BankConflict] = {}
    for move in shared_moves(values, kernel.runs):
        counted, position = move.passes, values.tree.line_of(move.node)
        if counted is None or position is None or counted[0] < 2 * counted[1]:
            continue
        times = runs[kernel.segment_of(move.node.body)].times
        times *= values.num_warps * move.instructions
        (line, direction), (passes, least) = (position[1], move.direction), counted
        known = conflicts.get((line, direction))
        cycles = (passes - least) * times + (known.cycles if known else 0.0)
        one = BankConflict(line, direction, move.width, passes, least, cycles)
        conflicts[line, direction] = one
    return tuple(sorted(conflicts.values(), key=lambda one: -one.cycles))
