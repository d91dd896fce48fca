"""Reading SASS: real machine code of four architectures, corner cases, and what is no SASS."""

from __future__ import annotations

import contextlib
import re
from functools import cache

import fixture_kernels as kernels
import pytest
import triton.language as tl
from asm_dumps import GEMM, compile_kernel
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import ParseError
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.asm.program import AsmFunction, Listing
from asmtune.ir.asm.sass import classify_sass, parse_sass, sass_loop_role
from asmtune.report.code import disassemble

ARCHES = (80, 90, 100, 120)
TILE = {"BM": 64, "BN": 64, "BK": 32, "ACC": tl.float32}
HEAD = '\t.section\t.text.k,"ax",@progbits\n .other k,@"STO_CUDA_ENTRY STV_DEFAULT"\nk:\n.text.k:\n'
SPECIALISED = {"BM": 128, "BN": 128, "BK": 64, "WS": True}


def disassembled(cubin: bytes) -> str:
    """The text of a cubin's SASS."""
    text = disassemble(cubin)
    assert isinstance(text, str), text
    return text


@cache
def gemm(arch: int) -> str:
    """SASS of a product with one loop."""
    made = compile_kernel(kernels.gemm, arch, GEMM, TILE, num_warps=4, num_stages=3)
    return disassembled(made["cubin"])


def body(*statements: str) -> AsmFunction:
    """Parse statements of a kernel, a label or an instruction each."""
    lines = [
        s if s.endswith(":") else f"        /*{16 * place:04x}*/   {s} ;"
        for place, s in enumerate(statements)
    ]
    return parse_sass(HEAD + "\n".join(lines)).entry


@pytest.mark.parametrize("arch", ARCHES)
def test_every_instruction_is_read(arch: int) -> None:
    """As many as there are addresses in the text, 16 bytes apart, each of a known class."""
    text = gemm(arch)
    listing = parse_sass(text)
    addresses = [place for program in listing.programs for place in program.addresses]
    assert addresses == [int(found, 16) for found in re.findall(r"/\*([0-9a-f]{4})\*/", text)]
    assert addresses == list(range(0, 16 * len(addresses), 16))
    opcodes = {item.opcode for program in listing.programs for item in program.instructions}
    assert not [name for name in opcodes if classify_sass(name) is OpClass.UNKNOWN]


@pytest.mark.parametrize("arch", ARCHES)
def test_the_loop_holds_the_tensor_instructions(arch: int) -> None:
    """One loop works; in it are tensor instructions and asynchronous copies, and no store."""
    program = parse_sass(gemm(arch)).entry
    (loop,) = [loop for loop in program.loops if loop.role == "work"]
    inside = {classify_sass(i.opcode) for block in loop.blocks for i in program.body(block)}
    assert {OpClass.TENSOR, OpClass.ASYNC_COPY, OpClass.BARRIER} <= inside
    assert OpClass.GLOBAL not in inside


@pytest.mark.slow
@pytest.mark.parametrize("arch", [90, 100])
def test_parts_of_a_specialised_kernel_hang_in_a_loop_that_dispatches(arch: int) -> None:
    """The loop that hands out the parts is no work, so that theirs have depth 1."""
    made = compile_kernel(kernels.tma_gemm, arch, GEMM, SPECIALISED, num_warps=4, num_stages=3)
    program = parse_sass(disassembled(made["cubin"])).entry
    (dispatch,) = [place for place, loop in enumerate(program.loops) if loop.role == "dispatch"]
    inside = [loop for loop in program.loops if loop.parent == dispatch and loop.role == "work"]
    assert [loop.depth for loop in inside] == [1, 1]


def test_branches() -> None:
    """A guard, a guard as operand or a question to the warp may fall through; a table never."""
    program = body(
        "@!P0 BRA `(.L_x_1)",
        "BRA.U !UP0, `(.L_x_1)",
        "BRA.DIV UR4, `(.L_x_1)",
        'BRX R2 -0x170  (*"BRANCH_TARGETS .L_x_1,.L_x_2"*)',
        ".L_x_1:",
        "@P1 EXIT",
        "CALL.REL.NOINC `($other)",
        ".L_x_2:",
        "BRA `(elsewhere)",
        "NOP",
    )
    successors = [block.successors for block in program.blocks]
    assert successors == [(4, 1), (4, 2), (4, 3), (4, 6), (5,), (6,), (), ()]


def test_functions_lie_behind_the_kernel() -> None:
    """A label with a name begins another function; a branch into it leaves the kernel."""
    text = HEAD + " /*0000*/ @P0 BRA `(.L_x_1) ;\n /*0010*/ EXIT ;\n$helper:\n.L_x_1:\n"
    listing = parse_sass(text + " /*0020*/ RET.REL.NODEC R2 `(k) ;\n")
    assert [(p.name, p.is_entry, p.addresses) for p in listing.programs] == [
        ("k", True, (0, 16)),
        ("$helper", False, (32,)),
    ]
    assert [block.successors for block in listing.entry.blocks] == [(1,), ()]


def test_loops_that_wait() -> None:
    """Trying a barrier, or asking for registers, is no work; adding numbers besides is."""
    polls = body("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR8], R4", "@!P0 BRA `(.L)")
    asks = body("UMOV UR4, 0x1", "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8", "@!P0 BRA `(.L)")
    adds = body("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR8], R4", "FADD R0, R0, R1")
    roles = [sass_loop_role(program.instructions) for program in (polls, asks, adds)]
    assert roles == ["wait", "wait", "work"]


CLASSES = {
    "HGMMA.64x128x16.F32": OpClass.TENSOR,
    "HFMA2.MMA": OpClass.FLOAT,
    "IMAD.MOV.U32": OpClass.MOVE,
    "IMAD.SHL.U32": OpClass.INTEGER,
    "HADD2.F32": OpClass.CONVERT,
    "ULOP3.LUT": OpClass.LOGIC,
    "UTMALDG.2D": OpClass.BULK_COPY,
    "CGAERRBAR": OpClass.FENCE,
    "UP2UR": OpClass.LOGIC,
    "WARPSYNC.COLLECTIVE": OpClass.BRANCH,
    "NEWOP.X": OpClass.UNKNOWN,
}


def test_classes() -> None:
    """Names that differ by a modifier, by the datapath, or that nobody knows."""
    assert {opcode: classify_sass(opcode) for opcode in CLASSES} == CLASSES


@given(st.data())
def test_damaged_text_never_crashes(data: st.DataObject) -> None:
    """Lines left out, doubled or cut give a listing or a ParseError."""
    lines = gemm(80).split("\n")
    start = data.draw(st.integers(0, len(lines) - 1))
    part = lines[start : start + data.draw(st.integers(0, 60))]
    cut = data.draw(st.integers(0, 40))
    with contextlib.suppress(ParseError):
        listing = parse_sass(HEAD + "\n".join(line[cut:] for line in data.draw(_mixed(part))))
        assert isinstance(listing, Listing)


def _mixed(lines: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(lines), max_size=40) if lines else st.just([])
