"""The data that a listing is made of."""

from __future__ import annotations

import pytest
from asm_dumps import fixture_listing
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import ParseError
from asmtune.ir.asm.program import AsmFunction, Listing, split_operands
from asmtune.ir.asm.ptx import parse_ptx


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("%r1, %r2", ("%r1", "%r2")),
        ("{%r1, %r2}, [%rd1+8], 16", ("{%r1, %r2}", "[%rd1+8]", "16")),
        ("[%r28], [%rd6, {%r4, %r29}], [%r27]", ("[%r28]", "[%rd6, {%r4, %r29}]", "[%r27]")),
        ("(retval0), fn, (a, b)", ("(retval0)", "fn", "(a, b)")),
    ],
)
def test_split_operands(text: str, expected: tuple[str, ...]) -> None:
    """Commas inside brackets and braces do not split."""
    assert split_operands(text) == expected


@given(st.text(alphabet="a,[]{}() ", max_size=40))
def test_split_operands_keeps_text(text: str) -> None:
    """Whatever the brackets, no character but commas and blanks is lost."""
    joined = "".join(split_operands(text))
    assert joined.replace(",", "").replace(" ", "") == text.replace(",", "").replace(" ", "")


@pytest.mark.parametrize(
    ("directives", "expected"),
    [
        ({"reqntid": "128"}, 128),
        ({"reqntid": "32, 2, 1"}, 64),
        ({"maxntid": "256"}, 256),
        ({"reqntid": "64", "maxntid": "256"}, 64),
        ({"reqntid": "9" * 5000}, None),
        ({"reqntid": "1, x"}, None),
        ({}, None),
    ],
)
def test_threads(directives: dict[str, str], expected: int | None) -> None:
    """Threads are the product of the sizes, and unknown where these are no numbers."""
    assert AsmFunction("k", True, (), (), (), directives).threads == expected


def test_depth_of_nested_loops() -> None:
    """The load of the inner loop is at depth 2, the square root after it at depth 1."""
    program = fixture_listing("nested-sm80-triton3.6").entry
    depths = {item.opcode: program.depth_of(item.index) for item in program.instructions}
    assert depths["ld.global.v4.b32"] == 2
    assert depths["sqrt.approx.ftz.f32"] == 1
    assert depths["st.global.v4.b32"] == 0


def test_block_of_agrees_with_blocks() -> None:
    """An instruction is in the block that block_of names."""
    program = fixture_listing("ws_gemm-sm100-triton3.6").entry
    for item in program.instructions:
        block = program.blocks[program.block_of(item.index)]
        assert block.start <= item.index < block.end


def test_entry_is_the_kernel() -> None:
    """A device function before the kernel is not taken for it."""
    listing = fixture_listing("calls-sm80-triton3.6")
    assert listing.entry.name == "calls"
    assert [program.is_entry for program in listing.programs].count(True) == 1
    assert len(listing.programs) == 2


def test_no_entry() -> None:
    """A file of device functions has no kernel, and the error names what it has."""
    listing = parse_ptx(".version 8.7\n.func helper()\n{\n\tret;\n}\n")
    assert isinstance(listing, Listing)
    with pytest.raises(ParseError, match="helper"):
        _ = listing.entry
