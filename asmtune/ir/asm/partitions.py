"""Which threads run which blocks of a warp-specialised kernel.

Triton gives each part (load, multiply, store) warps of its own. All instructions stand in
one program, and the parts' blocks hang in a `dispatch` loop, so that counts of a part
must be scaled by its own threads, not by the CTA's.
"""

from __future__ import annotations

import re
from collections import Counter

from asmtune.ir.asm.flow import Dominators
from asmtune.ir.asm.nvptx import is_switch_barrier
from asmtune.ir.asm.program import AsmFunction

_NAMED_BARRIER = re.compile(r"\d+\s*,\s*(\d{1,4})")
_WARP = 32


def block_threads(program: AsmFunction) -> tuple[int | None, ...]:
    """Return for each block how many threads of a CTA run it; None if not known.

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
            elif item.opcode in ("bar.sync", "barrier.sync"):
                match = _NAMED_BARRIER.fullmatch(item.text)
                if match:
                    named[int(match[1])] += 1
    if named:
        return named.most_common(1)[0][0]
    return _WARP if by_warp else None
