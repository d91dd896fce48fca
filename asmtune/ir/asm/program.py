"""Data of a file of assembly, for every instruction set.

A front end (`asmtune.ir.asm.ptx`, `asmtune.ir.asm.sass`) reads text into these;
`asmtune.ir.asm.flow` finds blocks and loops; an instruction set's own module
(`asmtune.ir.asm.nvptx`, `asmtune.ir.asm.sass`) says what opcodes mean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from asmtune.base.errors import ParseError

LoopRole = Literal["work", "wait", "dispatch"]
"""Meaning of a loop's trips.

- `work`: trips follow the data.
- `wait`: spins until a barrier opens; its trips are time, not work.
- `dispatch`: hands a warp to a part of a warp-specialised kernel, then comes back; each
  part in it runs once per warp-specialised region, however the loop is drawn.
"""

_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")
_NESTED = re.compile(r"[(\[{]")


def split_operands(text: str) -> tuple[str, ...]:
    """Split operand text at its commas, but not at those inside brackets or braces."""
    if not text:
        return ()
    if not _NESTED.search(text):
        return tuple(part.strip() for part in text.split(","))
    parts: list[str] = []
    depth = start = 0
    for place, char in enumerate(text):
        if char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    parts.append(text[start:].strip())
    return tuple(parts)


@dataclass(slots=True)
class Instruction:
    """An instruction of the text; treat it as read-only.

    Not frozen, for speed: a frozen dataclass takes four times as long to make (0.7 against
    0.18 us), and a kernel has thousands.

    Attributes:
        index: position in `AsmFunction.instructions`.
        line: line of the text, from 1; of the statement's first line where it has several.
        opcode: mnemonic with its modifiers, such as `cp.async.cg.shared.global`.
        predicate: guard without its `@`, such as `%p1` or `!%p1`; None if always executed.
        text: the operands as written.
        source: (file index, line) of the last source position; line 0 means "none".
    """

    index: int
    line: int
    opcode: str
    predicate: str | None
    text: str
    source: tuple[int, int] | None

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the operands; a vector such as `{%r1, %r2}` is one."""
        return split_operands(self.text)


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """Instructions `start` to `end` (exclusive), entered at the top only.

    Attributes:
        label: the label that branches to it name, or None.
        start: index of its first instruction.
        end: index after its last instruction.
        successors: blocks that may come next, by position in `AsmFunction.blocks`.
    """

    label: str | None
    start: int
    end: int
    successors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """A natural loop: all back edges to one header, and the blocks that reach them.

    Attributes:
        header: the block through which the loop is entered.
        blocks: its blocks in order, those of inner loops included.
        latches: blocks with a back edge to the header.
        parent: position of the enclosing loop in `AsmFunction.loops`, or None.
        depth: how many `work` loops it is in, itself included: 1 for an outermost `work`
            loop; a `wait` or `dispatch` loop has the depth of what is around it.
        role: what its trips are: work, a wait, or the dispatch of parts.
    """

    header: int
    blocks: tuple[int, ...]
    latches: tuple[int, ...]
    parent: int | None
    depth: int
    role: LoopRole


@dataclass(frozen=True)
class AsmFunction:
    """A function with a body.

    Attributes:
        name: the function's name.
        is_entry: True for a kernel, False for a device function.
        instructions: in the text's order.
        blocks: basic blocks in the text's order; together they are all instructions.
        loops: an outer loop precedes those inside it.
        directives: the function's own and the file's: `maxnreg`, `reqntid`, `maxntid`,
            `minnctapersm`, `version`, `target` and others, without dots, values as text.
        addresses: of each instruction, in bytes of its section; none of PTX, which has none.
    """

    name: str
    is_entry: bool
    instructions: tuple[Instruction, ...]
    blocks: tuple[BasicBlock, ...]
    loops: tuple[Loop, ...]
    directives: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[int, ...] = ()

    @cached_property
    def innermost_loops(self) -> tuple[int | None, ...]:
        """Return for each block the position in `loops` of the innermost loop around it."""
        innermost: list[int | None] = [None] * len(self.blocks)
        for position, loop in enumerate(self.loops):
            for block in loop.blocks:
                innermost[block] = position
        return tuple(innermost)

    @cached_property
    def block_depths(self) -> tuple[int, ...]:
        """Return for each block the number of `work` loops around it."""
        return tuple(0 if loop is None else self.loops[loop].depth for loop in self.innermost_loops)

    @cached_property
    def _blocks_by_instruction(self) -> list[int]:
        owners = [0] * len(self.instructions)
        for position, block in enumerate(self.blocks):
            owners[block.start : block.end] = [position] * (block.end - block.start)
        return owners

    def block_of(self, index: int) -> int:
        """Return the position in `blocks` of the block that holds instruction `index`."""
        return self._blocks_by_instruction[index]

    def depth_of(self, index: int) -> int:
        """Return how many `work` loops are around instruction `index`."""
        return self.block_depths[self.block_of(index)]

    def body(self, block: int) -> tuple[Instruction, ...]:
        """Return the instructions of a block."""
        span = self.blocks[block]
        return self.instructions[span.start : span.end]

    @property
    def threads(self) -> int | None:
        """Return the threads a CTA as the directives say (`reqntid`, else `maxntid`), or None."""
        text = self.directives.get("reqntid") or self.directives.get("maxntid")
        if not text:
            return None
        sizes = [part.strip() for part in text.split(",")]
        # Nine digits: int() raises on text of more than 4,300.
        valid = all(re.fullmatch(r"[0-9]{1,9}", size) for size in sizes)
        return math.prod(map(int, sizes)) if valid else None


@dataclass(frozen=True, slots=True)
class Listing:
    """A file of assembly.

    Attributes:
        programs: the functions with a body, in the text's order.
        directives: of the file: `version`, `target`, `address_size`.
        files: source file names by the index that `Instruction.source` uses.
        misplaced: for sources that the compiler gave to further lines of inline assembly, the
            sources of the pieces, in the same file; filled for PTX only (see `relocated` in
            `ir/asm/sass.py`).
    """

    programs: tuple[AsmFunction, ...]
    directives: Mapping[str, str]
    files: Mapping[int, str]
    misplaced: Mapping[tuple[int, int], tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @property
    def entry(self) -> AsmFunction:
        """Return the kernel: the first entry function.

        Raises:
            ParseError: the file has device functions only.
        """
        for program in self.programs:
            if program.is_entry:
                return program
        names = ", ".join(program.name for program in self.programs)
        raise ParseError(f"no kernel (.entry) in the file; its functions: {names}")
