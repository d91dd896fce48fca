"""Texts that a parser could take minutes for: linear time, or a limit in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from asmtune.base.errors import ParseError
from asmtune.ir.asm.nvptx import entries
from asmtune.ir.asm.ptx import parse_ptx
from asmtune.ir.asm.sass import parse_sass
from asmtune.ir.ttir.parser import parse_ttir

PTX = ".version 8.0\n.target sm_90\n.visible .entry k()\n{\n"
SASS = ".section .text.k\nk:\n"
TTIR = "module {\n  tt.func public @k(%a: !tt.ptr<f32>) {\n"


def loops(count: int, target: Callable[[int], int]) -> str:
    """PTX with so many labels and as many branches back."""
    return PTX + "".join(f"L{i}: @%p bra L{target(i)};\n" for i in range(count)) + "ret;\n}\n"


READ = {
    "200,000 statements on a line": (PTX + "add.s32 %r1, %r2, %r3; " * 200_000 + "ret;}", 200_001),
    "100,000 parentheses": (PTX + "x.y " + "(" * 100_000 + ")" * 100_000 + ";\nret;\n}\n", 2),
    "labels on a line": (PTX + "".join(f"L{i}:" for i in range(300_000)) + "ret;}", 1),
    "latches of a loop": (PTX + "L0:\n" + "@%p bra L0;\n" * 90_000 + "ret;\n}\n", 90_001),
}


@pytest.mark.slow(seconds=6)
@pytest.mark.parametrize("name", READ)
def test_long_ptx_is_read_in_one_pass(name: str) -> None:
    """A text whose every part was sliced off the rest, or walked for each branch, is read."""
    text, count = READ[name]
    assert len(parse_ptx(text).entry.instructions) == count


REFUSED: dict[str, tuple[Callable[[str], Any], str, str]] = {
    "braces": (parse_ptx, PTX + "{" * 1_000_000, "deeper than 64"),
    "loops in loops": (parse_ptx, loops(20_000, lambda i: i // 2), "back over 10,000,000 blocks"),
    "tables": (
        parse_ptx,
        PTX
        + f"T: .branchtargets {','.join(f'L{i}' for i in range(3000))};\n"
        + "".join(f"L{i}: brx.idx %r, T;\n" for i in range(3000)),
        "the text ends",
    ),
    "spaces": (parse_sass, SASS + "/*0000*/ X" + " " * 1_000_000, "not SASS"),
    "jumps": (
        parse_sass,
        SASS + "".join(f".L{i}:\n/*0000*/ @P0 BRA `(.L{i // 2}) ;\n" for i in range(20_000)),
        "back over 10,000,000 blocks",
    ),
    "nested loops": (
        parse_ptx,
        PTX
        + "".join(f"L{i}: add.s32 %r, %r, %r;\n" for i in range(2000))
        + "".join(f"@%p bra L{i};\n" for i in reversed(range(2000)))
        + "ret;\n}\n",
        "more than 1,000,000",
    ),
    "kernels": (
        parse_sass,
        SASS + "".join(f"k{i}:\n/*0000*/ EXIT ;\n" for i in range(20_000)),
        "more than 10,000",
    ),
    "regions": (parse_ttir, TTIR + "scf.if %x {\n" * 100_000, "deeper than 100"),
    "a line": (parse_ttir, TTIR + "x.y " + "(" * 1_000_000, "1,000,004 characters"),
    "attributes": (
        parse_ttir,
        "module {\n  tt.func public @k(%a: " + " {} loc(" * 20_000 + " x) {\n",
        "the text ends",
    ),
    "while": (parse_ttir, TTIR + "%0 = scf.while (" + ") : (" * 30_000 + " {\n", "the text ends"),
}


@pytest.mark.slow(seconds=2)
@pytest.mark.parametrize("name", REFUSED)
def test_a_text_beyond_a_limit_is_one_line(name: str) -> None:
    """What would take minutes, or memory without end, is refused in a line that says why."""
    parse, text, message = REFUSED[name]
    with pytest.raises(ParseError, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_entries_without_an_end() -> None:
    """Headers and comments that never end are looked at once."""
    assert [entry.name for entry in entries(".entry a (" * 100_000)] == ["a"]
    assert entries("/*" * 100_000) == []
