"""Kernels with the bodies of the functions that they call."""

from __future__ import annotations

import re

from asmtune.ir.asm.flow import MOST_INSTRUCTIONS, MOST_LEVELS
from asmtune.ir.asm.program import AsmFunction
from asmtune.ir.asm.ptx import parse_ptx, ptx_kernel

HEAD = ".version 8.7\n.target sm_90a\n"

# A loop of two calls; the function leaves early, or goes through a loop of its own.
LOOPS = """
.func  (.param .b32 func_retval0) helper(.param .b32 helper_param_0);
.visible .entry kernel(.param .b32 kernel_param_0)
{
    mov.b32 %r1, 0;
$L__outer:
    call.uni (retval0), helper, (param0);
    ld.param.b32 %r2, [retval0];
    call.uni (retval0), helper, (param0);
    setp.ne.b32 %p1, %r1, 9;
    @%p1 bra $L__outer;
    st.global.b32 [%rd1], %r2;
    ret;
}
.func  (.param .b32 func_retval0) helper(.param .b32 helper_param_0)
{
    ld.param.b32 %r1, [helper_param_0];
    @%p1 ret;
$L__inner:
    sqrt.approx.f32 %r1, %r1;
    @%p2 bra $L__inner;
    ret;
}
"""


def depths(program: AsmFunction, opcode: str) -> list[int]:
    """Return how many loops are around each instruction of an opcode."""
    return [program.depth_of(i.index) for i in program.instructions if i.opcode == opcode]


def test_loops_of_called_functions_are_inside_those_of_their_callers() -> None:
    """Each call has the body of its own, whose loop is one deeper than the call."""
    listing = parse_ptx(HEAD + LOOPS)
    program = ptx_kernel(listing)
    assert depths(program, "sqrt.approx.f32") == [2, 2]
    assert depths(program, "call.uni") == [1, 1]
    assert depths(program, "st.global.b32") == [0]
    assert [loop.depth for loop in program.loops] == [1, 2, 2]
    assert depths(listing.entry, "sqrt.approx.f32") == []
    assert [item.index for item in program.instructions] == list(range(len(program.instructions)))


def test_registers_of_each_call_are_its_own() -> None:
    """The caller's registers, and those of two calls of one function, have different names."""
    program = ptx_kernel(parse_ptx(HEAD + LOOPS))
    written = [i.operands[0] for i in program.instructions if i.opcode == "sqrt.approx.f32"]
    assert len({"%r1", *written}) == 3
    assert all(re.fullmatch(r"%[a-z]+1", name) for name in written)
    guards = [i.predicate for i in program.instructions if i.opcode == "bra"]
    assert len(set(guards)) == 3


def test_calls_that_lead_nowhere_stay() -> None:
    """Calls through a register and of functions without a body add nothing."""
    text = (
        ".extern .func vprintf(.param .b64 a);\n.func used()\n{\n\tret;\n}\n"
        ".entry k()\n{\n\tcall.uni (retval0), vprintf, (param0);\n\tcall (ret), %rd1, (p), proto;\n"
        "\tcall.uni used;\n\tret;\n}\n"
    )
    assert [i.opcode for i in ptx_kernel(parse_ptx(HEAD + text)).instructions] == [
        *("call.uni", "call", "call.uni", "ret", "ret")
    ]


def test_recursion_ends() -> None:
    """A function that calls itself is followed for some levels only."""
    text = ".func f()\n{\n\tcall.uni f;\n\tret;\n}\n.entry k()\n{\n\tcall.uni f;\n\tret;\n}\n"
    program = ptx_kernel(parse_ptx(HEAD + text))
    assert len(program.instructions) == 2 * (MOST_LEVELS + 1)


def test_growth_ends() -> None:
    """Functions that each call another twice do not fill the memory."""
    chain = "".join(f".func f{i}()\n{{\n{f'call.uni f{i + 1};' * 90}\nret;\n}}\n" for i in range(9))
    text = HEAD + chain + ".func f9()\n{\nret;\n}\n.entry k()\n{\ncall.uni f0;\nret;\n}\n"
    assert len(ptx_kernel(parse_ptx(text)).instructions) <= MOST_INSTRUCTIONS
