"""Registers that a PTX instruction reads and writes.

After NVIDIA, "Parallel Thread Execution ISA", section 6.4: the destination stands first.
"""

from __future__ import annotations

import re
from functools import lru_cache

from asmtune.ir.asm.nvptx import OpClass, classify
from asmtune.ir.asm.program import Instruction

_REGISTERS = re.compile(r"%[a-z]+\d+").findall

_NO_RESULT = frozenset(
    {
        OpClass.ASYNC_COPY,
        OpClass.BULK_COPY,
        OpClass.ASYNC_WAIT,
        OpClass.BARRIER,
        OpClass.BRANCH,
        OpClass.FENCE,
    }
)
_STORES = ("st.", "red.", "stmatrix.", "wmma.store.", "multimem.st.", "multimem.red.", "tcgen05.st")
_ACCUMULATES = ("wgmma.mma_async", "tcgen05.mma")


def registers(instruction: Instruction) -> tuple[list[str], list[str]]:
    """Return the registers read, the guard among them, and those written.

    Accumulators of wgmma are both. Special registers (`%tid.x`) and names of the
    text's own are none.
    """
    opcode, text = instruction.opcode, instruction.text
    named = _REGISTERS(text)
    # An address that stands first, as of tcgen05.mma: the result lies in memory.
    if not named or text[0] == "[" or not _has_result(opcode):
        written, read = [], named
    else:
        # One register, a pair (`%p1|%p2`) or a vector; no register's name ends in "%".
        number = text.count("%", 0, text.find("}" if text[0] == "{" else ","))
        written, read = named[:number], named[number:]
        if opcode.startswith(_ACCUMULATES):
            read = named
    return (_REGISTERS(instruction.predicate) + read if instruction.predicate else read), written


@lru_cache(maxsize=1024)
def _has_result(opcode: str) -> bool:
    return classify(opcode) not in _NO_RESULT and not opcode.startswith(_STORES)
