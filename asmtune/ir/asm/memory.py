"""Memory traffic of PTX instructions: from where to where, and how many bytes.

After NVIDIA, "Parallel Thread Execution ISA", section 9.7.9.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

from asmtune.ir.asm.nvptx import OpClass, classify, memory_space
from asmtune.ir.asm.program import Instruction
from asmtune.ir.asm.tensor import literal_value

Space = Literal["global", "shared", "local", "param", "const", "generic", "tensor"]
Direction = Literal["load", "store", "atomic"]


@dataclass(frozen=True, slots=True)
class AsmAccess:
    """A memory access.

    Attributes:
        space: the memory; of a copy between two, the one farther from the core.
        direction: `load` towards the core, `store` away from it, `atomic` both.
        bytes: bytes each executing thread moves; None where the text does not say, as for
            a TMA copy, whose box is in its descriptor.
        copies: True if it goes to or from shared memory and not a register.
    """

    space: Space
    direction: Direction
    bytes: int | None
    copies: bool = False


_WIDTH = re.compile(r"(?:b?f|[bsu]|tf)(\d+)(?:x(\d+))?")
_VECTOR = re.compile(r"\.v([248])(?=\.|$)")
_MATRICES = re.compile(r"\.x([124])(?=\.|$)")
_DIRECTIONS: dict[str, Direction] = {
    "atom": "atomic",
    "red": "atomic",
    "ld": "load",
    "ldu": "load",
    "ldmatrix": "load",
    "st": "store",
    "stmatrix": "store",
}


def access(instruction: Instruction) -> AsmAccess | None:
    """Describe the memory access of an instruction; None if it makes none."""
    opcode = instruction.opcode
    kind = classify(opcode)
    if kind is OpClass.ASYNC_COPY:
        operands = instruction.operands
        size = literal_value(operands[2]) if len(operands) > 2 else None
        return AsmAccess("global", "load", size, copies=True)
    if kind is OpClass.BULK_COPY:
        return _bulk_copy(instruction)
    if opcode.startswith(("tcgen05.ld.", "tcgen05.st.")):
        # The shapes differ, but each register a thread names is 4 bytes.
        vector = next((text for text in instruction.operands if text.startswith("{")), "")
        bytes_moved = 4 * len(re.findall(r"%\w+", vector)) or None
        direction: Direction = "load" if opcode.startswith("tcgen05.ld.") else "store"
        return AsmAccess("tensor", direction, bytes_moved)
    return _plain_access(opcode)


def _bulk_copy(instruction: Instruction) -> AsmAccess | None:
    """Describe cp.async.bulk, whose name gives the destination's space, then the source's.

    The plain form has its size as third operand; a tensor copy moves its descriptor's box.
    """
    opcode = instruction.opcode
    outer, inner = opcode.find(".global"), opcode.find(".shared")
    if outer < 0 or inner < 0:
        return None
    operands = instruction.operands
    has_size = ".tensor" not in opcode and len(operands) > 2
    size = literal_value(operands[2]) if has_size else None
    direction: Direction = "load" if inner < outer else "store"
    return AsmAccess("global", "atomic" if "reduce" in opcode else direction, size, copies=True)


@lru_cache(maxsize=1024)
def _plain_access(opcode: str) -> AsmAccess | None:
    direction = _DIRECTIONS.get(opcode.partition(".")[0])
    if direction is None:
        return None
    if opcode.startswith(("ldmatrix", "stmatrix")):
        # One 8 x 8 matrix of 16-bit elements is 128 bytes, 4 for each lane.
        matrices = _MATRICES.search(opcode)
        return AsmAccess("shared", direction, 4 * int(matrices[1]) if matrices else None)
    space = cast("Space", memory_space(opcode) or "generic")
    width = next(filter(None, map(_WIDTH.fullmatch, reversed(opcode.split(".")))), None)
    if width is None:
        return AsmAccess(space, direction, None)
    vector = _VECTOR.search(opcode)
    bits = int(width[1]) * int(width[2] or 1) * (int(vector[1]) if vector else 1)
    return AsmAccess(space, direction, bits // 8)


def expected_bytes(instruction: Instruction) -> int | None:
    """Return the bytes that a thread tells an mbarrier to wait for; None if it tells none.

    TMA copies do not say their size, but an instruction gives the sum to the barrier that they
    complete on: one such instruction covers all copies of a stage, whichever warps issue them.
    """
    if ".expect_tx" not in instruction.opcode or not instruction.opcode.startswith("mbarrier"):
        return None
    operands = instruction.operands
    return literal_value(operands[-1]) if operands else None
