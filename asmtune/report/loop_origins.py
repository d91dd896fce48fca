"""Matches loops of the SASS with loops of the PTX, to tell how often they run.

ptxas keeps most loops, unrolls some into a main part and a rest, and drops those that take one
trip. A loop of the SASS belongs to the loop of the PTX whose source lines it shares, in the same
nesting; where the debug information is missing, loops pair up in order. How often it runs is how
often the PTX's does, over the copies of the PTX's body in it. Straight code behind
an unrolled loop, for the trips that are left, counts once an entry, as all that is conditional.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from asmtune.ir.asm.nvptx import OpClass, classify
from asmtune.ir.asm.program import AsmFunction
from asmtune.ir.asm.sass import classify_sass
from asmtune.predict.features.execution import SegmentRun

_KEPT: Final = (
    OpClass.TENSOR,
    OpClass.ASYNC_COPY,
    OpClass.BULK_COPY,
    OpClass.GLOBAL,
    OpClass.ATOMIC,
    OpClass.BARRIER,
)
"""Classes whose instructions ptxas keeps, each as one or a few. Special functions are not among
them: in the shipped kernels it moves some out of loops, and adds others for integer division."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The position of the PTX's loop that one of the SASS comes from; mean trips in a program."""

    loop: int | None
    times: float


def origins(sass: AsmFunction, ptx: AsmFunction, runs: Sequence[SegmentRun]) -> tuple[Origin, ...]:
    """Find, for each loop of the SASS, the loop of the PTX that it comes from.

    `runs` says how often the PTX's segments run, as `executions` gives it.
    """
    bodies, given = _Bodies(sass, classify_sass), _Bodies(ptx, classify)
    matched = _matched(bodies, given)
    result: list[Origin] = []
    for position, loop in enumerate(sass.loops):
        around = 1.0 if loop.parent is None else result[loop.parent].times
        origin = matched[position]
        if loop.role != "work" or origin is None:
            result.append(Origin(None, around))
            continue
        siblings = [
            other
            for other, its in enumerate(matched)
            if its == origin and sass.loops[other].parent == loop.parent
        ]
        copies = {other: _copies(bodies, other, given, origin) for other in siblings}
        times = _times(position, copies, runs[origin + 1].times, around)
        result.append(Origin(origin, times))
    return tuple(result)


def _times(position: int, copies: dict[int, int], all_times: float, entries: float) -> float:
    """Compute the executions of one of the loops that one loop became: main part, or rest."""
    main = max(copies, key=lambda other: (copies[other], -other))
    if len(copies) == 1:
        return all_times / copies[main]
    trips = all_times / max(entries, 1.0)
    rounds = math.floor(trips / copies[main])
    if position == main:
        return entries * rounds
    return entries * (trips - rounds * copies[main]) / copies[position]


class _Bodies:
    """Segments of each loop of a program, without inner loops that do work."""

    def __init__(self, program: AsmFunction, class_of: Callable[[str], OpClass]) -> None:
        self.program = program
        self.lines: list[set[int]] = [set() for _ in program.loops]
        self.classes: list[Counter[OpClass]] = [Counter() for _ in program.loops]
        for block, loop in enumerate(program.innermost_loops):
            while loop is not None and program.loops[loop].role == "wait":
                loop = program.loops[loop].parent
            if loop is None:
                continue
            for item in program.body(block):
                self.classes[loop][class_of(item.opcode)] += 1
                if item.source is not None and item.source[1]:
                    self.lines[loop].add(item.source[1])

    def children(self, parent: int | None) -> list[int]:
        """Find loops that work right inside another, whatever waits or dispatches between them."""
        loops = self.program.loops
        inner = []
        for position, loop in enumerate(loops):
            around = loop.parent
            while around is not None and loops[around].role != "work":
                around = loops[around].parent
            if loop.role == "work" and around == parent:
                inner.append(position)
        return inner


def _matched(bodies: _Bodies, given: _Bodies) -> list[int | None]:
    """Find, for each loop of the SASS, the position of the PTX's, from the outside in."""
    matched: list[int | None] = [None] * len(bodies.program.loops)
    parents: list[tuple[int | None, int | None]] = [(None, None)]
    while parents:
        mine, its = parents.pop()
        children, candidates = bodies.children(mine), given.children(its)
        for child in children:
            alike = {c: _likeness(bodies, child, given, c) for c in candidates}
            # Of loops equally alike, such as two parts that load, each has its own.
            best = max(alike, key=lambda c: (alike[c], c not in matched), default=None)
            matched[child] = best if best is not None and alike[best] else None
        for child, origin in _by_order(bodies, given, children, candidates, matched):
            matched[child] = origin
        # A loop that the PTX does not have hides nothing of those inside it.
        parents += [(child, its if (o := matched[child]) is None else o) for child in children]
    return matched


def _by_order(
    bodies: _Bodies,
    given: _Bodies,
    children: Sequence[int],
    candidates: Sequence[int],
    matched: Sequence[int | None],
) -> list[tuple[int, int]]:
    """Pair what lines do not tell: as many loops as are left, or all with the only one."""
    open_children = [
        child for child in children if matched[child] is None and not bodies.lines[child]
    ]
    left = [origin for origin in candidates if origin not in matched]
    if len(open_children) == len(left):
        return list(zip(open_children, left, strict=True))
    if len(candidates) == 1:
        only = candidates[0]
        return [
            (child, only) for child in open_children if _has_kept_class(bodies, child, given, only)
        ]
    return []


def _has_kept_class(bodies: _Bodies, loop: int, given: _Bodies, other: int) -> bool:
    kept = [kind for kind in _KEPT if given.classes[other][kind]]
    return not kept or any(bodies.classes[loop][kind] for kind in kept)


def _likeness(bodies: _Bodies, loop: int, given: _Bodies, other: int) -> float:
    """Multiply the shares of common source lines and of common kept classes."""
    lines, its = bodies.lines[loop], given.lines[other]
    if not lines or not its:
        return 0.0
    own_kinds = {kind for kind in _KEPT if bodies.classes[loop][kind]}
    other_kinds = {kind for kind in _KEPT if given.classes[other][kind]}
    common = len(own_kinds & other_kinds) / len(own_kinds | other_kinds) if other_kinds else 1.0
    return common * len(lines & its) / len(lines | its)


def _copies(bodies: _Bodies, loop: int, given: _Bodies, other: int) -> int:
    """Count how often the PTX's body is in the SASS's: the least of its classes' ratios.

    Unrolling multiplies all classes; one that ptxas makes several instructions of, alone.
    """
    ratios = [
        bodies.classes[loop][kind] / given.classes[other][kind]
        for kind in _KEPT
        if given.classes[other][kind] and bodies.classes[loop][kind]
    ]
    return max(1, round(min(ratios, default=1.0)))
