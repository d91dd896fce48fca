"""The data that a listing is made of."""

from __future__ import annotations

import pytest
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


def test_no_entry() -> None:
    """A file of device functions has no kernel, and the error names what it has."""
    listing = parse_ptx(".version 8.7\n.func helper()\n{\n\tret;\n}\n")
    assert isinstance(listing, Listing)
    with pytest.raises(ParseError, match="helper"):
        _ = listing.entry
