"""Read assembly: PTX and SASS to instructions, blocks and loops, cubins to resources.

Pure: text or bytes in, data out. Nothing here reads a file, runs a tool or needs a GPU.
"""

from __future__ import annotations

from asmtune.asm.counts import MNEMONICS, Counts, count, hottest_loop, mnemonic_counts
from asmtune.asm.cubin import Resources, read_cubin
from asmtune.asm.entry import Entry, entries
from asmtune.asm.groups import Group, group_of
from asmtune.asm.inlined import relocated
from asmtune.asm.memory import Access, access, expected_bytes
from asmtune.asm.nvptx import OpClass, classify
from asmtune.asm.nvsass import classify_sass
from asmtune.asm.partitions import block_threads
from asmtune.asm.program import Block, Instruction, Listing, Loop, LoopRole, Program
from asmtune.asm.ptx import parse_ptx
from asmtune.asm.sass import parse_sass
from asmtune.asm.tensor import TensorKind, TensorOp, tensor_op, tensor_ops

__all__ = [
    "MNEMONICS",
    "Access",
    "Block",
    "Counts",
    "Entry",
    "Group",
    "Instruction",
    "Listing",
    "Loop",
    "LoopRole",
    "OpClass",
    "Program",
    "Resources",
    "TensorKind",
    "TensorOp",
    "access",
    "block_threads",
    "classify",
    "classify_sass",
    "count",
    "entries",
    "expected_bytes",
    "group_of",
    "hottest_loop",
    "mnemonic_counts",
    "parse_ptx",
    "parse_sass",
    "read_cubin",
    "relocated",
    "tensor_op",
    "tensor_ops",
]
