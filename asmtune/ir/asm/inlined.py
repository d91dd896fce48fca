"""Source lines of inline assembly in SASS, where the compiler has put them further down.

The LLVM of Triton 3.9 counts each further line of a piece of inline assembly one source line
down: of `tl.load(..., other=0.0)` on line 10, four registers and the load become lines 10 to 13.
PTX says where a piece begins and ends; SASS does not, and has only lines, no columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from asmtune.ir.asm.nvptx import OpClass, classify
from asmtune.ir.asm.nvsass import classify_sass
from asmtune.ir.asm.program import Instruction, Listing

What = tuple[OpClass, bool]


def relocated(sass: Listing, ptx: Listing) -> Listing:
    """The SASS with instructions of inline assembly at the line of their piece.

    An instruction moves where the PTX has nothing of its kind (class, and whether it stores) at
    its line, but in a piece of which a further line was put there.

    Args:
        sass: what ptxas made of the PTX.
        ptx: with its `misplaced`.
    """
    if not ptx.misplaced:
        return sass
    to_ptx = {mine: its for mine, a in sass.files.items() for its, b in ptx.files.items() if a == b}
    given = (item for program in ptx.programs for item in program.instructions)
    asked = {(item.source, _what(item, classify)) for item in given}
    known = {place for place, _ in asked}

    def moved(item: Instruction) -> Instruction:
        if item.source is None:
            return item
        place = (to_ptx.get(item.source[0], 0), item.source[1])
        what = _what(item, classify_sass)
        homes = ptx.misplaced.get(place, ())
        if (place, what) in asked or not homes:
            return item
        fitting = [home for home in homes if (home, what) in asked]
        if not fitting and place in known:
            return item
        _, line = (fitting or homes)[0]
        return replace(item, source=(item.source[0], line))

    programs = tuple(
        replace(program, instructions=tuple(map(moved, program.instructions)))
        for program in sass.programs
    )
    return replace(sass, programs=programs)


def _what(item: Instruction, class_of: Callable[[str], OpClass]) -> What:
    return class_of(item.opcode), item.opcode.lower().startswith("st")
