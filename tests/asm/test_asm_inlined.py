"""SASS whose inline assembly the compiler has put at lines further down."""

from __future__ import annotations

from asmtune.ir.asm.ptx import parse_ptx
from asmtune.ir.asm.sass import parse_sass, relocated

# Of what Triton 3.9 makes of a load on line 9, `y = exp(x) * x + 1` on 10 and 11, a store on 12.
PTX = """
.version 8.7
.target sm_90a
.visible .entry masked(.param .u64 x) {
    .loc    1 8 5
    mov.b32 %r9, 0;
    // begin inline asm
    .loc    1 9 13
    mov.u32 %r5, %r9;
    .loc    1 10 13
    mov.u32 %r6, %r9;
    .loc    1 11 13
    mov.u32 %r7, %r9;
    .loc    1 12 13
    mov.u32 %r8, %r9;
    .loc    1 13 13
    @%p2 ld.global.v4.b32 { %r5, %r6, %r7, %r8 }, [ %rd4 + 0 ];
    // end inline asm
    .loc    1 10 11
    ex2.approx.f32 %r10, %r5;
    .loc    1 11 17
    fma.rn.f32 %r11, %r10, %r5, %r12;
    .loc    1 12 9
    st.global.b32 [ %rd8 ], %r11;
    ret;
}
.file 1 "/masked.py"
.file 2 "/other.py"
"""


def sass(*lines: tuple[str, int, str]) -> str:
    """SASS of instructions, each with its file and line."""
    head = '\t.section\t.text.k,"ax",@progbits\n .other k,@"STO_CUDA_ENTRY STV_DEFAULT"\nk:\n'
    body = (
        f'\t//## File "{file}", line {line}\n        /*{16 * place:04x}*/   {text} ;'
        for place, (file, line, text) in enumerate(lines)
    )
    return head + "\n".join(body) + "\n"


LOAD, COMPUTE = "LDG.E.128 R12, desc[UR8][R20.64]", "FFMA R12, R23, R12, 1"
PLACED = [
    (12, LOAD, 9),  # the kernel only stores there
    (12, "STG.E desc[UR8][R20.64], R12", 12),
    (11, LOAD, 9),
    (11, COMPUTE, 11),
    (13, LOAD, 9),  # the kernel has no such line
    (13, "CS2R R12, SRZ", 9),
    (8, "IADD3 R1, R1, 0x1, RZ", 8),
]


def test_instructions_stand_where_their_statement_does() -> None:
    """A load put at a line that only computes or stores is one of the piece above it."""
    for line, text, expected in PLACED:
        listing = relocated(parse_sass(sass(("/masked.py", line, text))), parse_ptx(PTX))
        (item,) = listing.entry.instructions
        assert item.source is not None
        place = listing.files[item.source[0]], item.source[1]
        assert place == ("/masked.py", expected), (line, text)


def test_other_files_and_what_has_no_line() -> None:
    """A line of another file stays, as does all without debug information or inline assembly."""
    listing = parse_sass(sass(("/other.py", 12, LOAD), ("/masked.py", 12, LOAD)))
    found = relocated(listing, parse_ptx(PTX)).entry.instructions
    assert [item.source for item in found] == [(1, 12), (2, 9)]
    bare = parse_sass(sass(("", 0, LOAD)).replace('\t//## File "", line 0\n', ""))
    assert relocated(bare, parse_ptx(PTX)).entry.instructions[0].source is None
    outside = PTX.replace("// begin inline asm", "").replace("// end inline asm", "")
    assert relocated(listing, parse_ptx(outside)) is listing
