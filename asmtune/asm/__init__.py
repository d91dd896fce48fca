"""Read assembly: PTX text to instructions, blocks and loops, cubins to resources.

Pure: text or bytes in, data out. Nothing here reads a file, runs a tool or needs a GPU.
"""

from __future__ import annotations

from asmtune.asm.counts import MNEMONICS, Counts, count, hottest_loop, mnemonic_counts
from asmtune.asm.cubin import Resources, read_cubin
from asmtune.asm.entry import Entry, entries
from asmtune.asm.memory import Access, access, expected_bytes
from asmtune.asm.nvptx import OpClass, classify
from asmtune.asm.partitions import block_threads
from asmtune.asm.program import Block, Instruction, Listing, Loop, LoopRole, Program
from asmtune.asm.ptx import parse_ptx
from asmtune.asm.tensor import TensorKind, TensorOp, tensor_op, tensor_ops

__all__ = [
    "MNEMONICS",
    "Access",
    "Block",
    "Counts",
    "Entry",
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
    "count",
    "entries",
    "expected_bytes",
    "hottest_loop",
    "mnemonic_counts",
    "parse_ptx",
    "read_cubin",
    "tensor_op",
    "tensor_ops",
]
