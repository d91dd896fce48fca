"""Reading PTX: real dumps, corner cases of the language, and what is no PTX."""

from __future__ import annotations

import contextlib
import re

import pytest
from asm_dumps import fixture_text, ptx_names
from hypothesis import given, settings
from hypothesis import strategies as st

from asmtune.base.errors import ParseError
from asmtune.ir.asm.program import AsmFunction, Listing
from asmtune.ir.asm.ptx import parse_ptx

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def body(text: str) -> AsmFunction:
    """Parse the statements of a kernel."""
    return parse_ptx(f"{HEAD}.visible .entry k()\n{{\n{text}\n}}\n").entry


@pytest.mark.parametrize("name", ptx_names())
def test_instructions_are_those_of_the_text(name: str) -> None:
    """Each line of a dump that ends in a semicolon and is no directive is an instruction."""
    text = fixture_text(name)
    expected = [
        number
        for number, line in enumerate(text.split("\n"), 1)
        if re.match(r"\s*(@!?[%\w]+\s+)?[a-z][\w.:]*(\s[^;]*)?;", line) and ":" not in line[:2]
    ]
    found = [item.line for program in parse_ptx(text).programs for item in program.instructions]
    # A call stands on several lines; of these only the first is an instruction's.
    assert set(expected) <= set(found)
    assert len(found) == len(set(found))
    lines = text.split("\n")
    for number in set(found) - set(expected):
        assert "call" in lines[number - 1]


WAIT = "{ waitLoop:\nmbarrier.try_wait.b64 p, [a];\n@!p bra.uni waitLoop; }"
BODIES = {
    "guards": (
        "@%p1 bra end;\n@!%p2 mov.b32 %r1, 0;\nend: ret;",
        "%p1 bra|!%p2 mov.b32|ret 2,1|2|",
    ),
    "scopes": (f"{WAIT}\n{WAIT}\nret;", "mbarrier.try_wait.b64|!p bra.uni|" * 2 + "ret 0,1|1,2|"),
    "outside": (
        "{\n@%p bra done;\n{ bra.uni done; }\n}\nmov.b32 %r1, 0;\ndone:\nret;",
        "%p bra|bra.uni|mov.b32|ret 3,1|3|3|",
    ),
    "a line": (
        "{ .reg .pred p; setp.eq.s32 p, %r1, 0; L: @p bra L; } ret;",
        "setp.eq.s32|p bra|ret 1|1,2|",
    ),
    "lines": (
        "call.uni (ret0),\n\thelper, // a comment\n\t(\n\ta0,\n\ta1\n\t);\nret;",
        "call.uni|ret ",
    ),
    "a table": (
        "T: .branchtargets\n\tA,\n\tB;\nbrx.idx %r1, T;\nA: ret;\nB: trap;",
        "brx.idx|ret|trap 1,2||",
    ),
    "comments": (
        "/* bra nowhere;\n*/ mov.b32 /* x */ %r1, 0; // /* no start\nret;",
        "mov.b32|ret ",
    ),
    "unknown": ("frob.sync::x.f32 %r1, %r2;\nret;", "frob.sync::x.f32|ret "),
}


@pytest.mark.parametrize("name", BODIES)
def test_statements(name: str) -> None:
    """Guards, scopes of labels, tables and comments: instructions, and where blocks lead."""
    text, expected = BODIES[name]
    program = body(text)
    items = "|".join(f"{i.predicate or ''} {i.opcode}".strip() for i in program.instructions)
    nexts = "|".join(",".join(map(str, block.successors)) for block in program.blocks)
    assert f"{items} {nexts}" == expected
    lines = HEAD.count("\n") + 3
    assert [i.line for i in program.instructions] == sorted(i.line for i in program.instructions)
    assert all(lines <= i.line <= lines + text.count("\n") for i in program.instructions)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('.file 3 "a//b;c.py"\n', ""),
        (".global .align 1 .b8 t[2] = {1, 2};\n", ""),
        (".extern .func f\n(\n\t.param .b64 p\n)\n.noreturn;\n", ""),
        (
            "",
            "\t.section\t.debug_str\n\t{\n.b8 1\n$L__x:\n\t}\n\t.section\t.debug_macinfo\t{\t}\n",
        ),
    ],
)
def test_what_stands_around_a_function(before: str, after: str) -> None:
    """Files, tables of bytes, declarations and debug sections are no functions."""
    listing = parse_ptx(f"{HEAD}{before}.entry k()\n{{\n\tret;\n}}\n{after}")
    assert [(one.name, len(one.instructions)) for one in listing.programs] == [("k", 1)]
    assert listing.files == ({3: "a//b;c.py"} if ".file" in before else {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no .version"),
        ("\x7fELF\x02", "line 1: not PTX"),
        (HEAD + ".entry k()\n{\n\tret;\n", "ends inside function k, opened at line 4"),
        (HEAD + ".entry k()\n{\n\tadd.s32 %r1,", "line 6: the text ends inside a statement"),
        (HEAD + ".entry k()\n{\n\tbra L;\n}\n", "line 6: bra to a label that is not"),
        (HEAD + ".entry k()\n{\nL: L: ret;\n}\n", "line 6: label 'L' stands twice"),
        (HEAD + ".entry k()\n{\n\t%r1 = 3;\n}\n", "line 6: not PTX"),
        (HEAD + ".entry\n{\n\tret;\n}\n", "line 4: a function without a name"),
        (HEAD + ".section .debug_str\n{\n.b8 1\n", "line 4: the text ends inside .section"),
    ],
)
def test_errors_name_line_and_cause(text: str, message: str) -> None:
    """What is no PTX, or only half of it, is refused with its place."""
    with pytest.raises(ParseError, match=re.escape(message)):
        parse_ptx(text)


def test_every_truncation_is_noticed() -> None:
    """A dump cut anywhere inside its functions is refused."""
    text = fixture_text("calls-sm80-triton3.6")
    for cut in range(text.index("{\n", text.index(".entry")) + 1, text.rindex("ret;"), 61):
        with pytest.raises(ParseError):
            parse_ptx(text[:cut])


def check_consistent(listing: Listing) -> None:
    """Assert what holds of any listing."""
    for program in listing.programs:
        covered = [i for block in program.blocks for i in range(block.start, block.end)]
        assert covered == [item.index for item in program.instructions]
        for position, loop in enumerate(program.loops):
            assert loop.header in loop.blocks
            assert set(loop.latches) <= set(loop.blocks)
            assert loop.parent is None or loop.parent < position


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_mutated_dumps_parse_or_raise_parse_error(data: st.DataObject) -> None:
    """Dumps with pieces cut, doubled or overwritten never raise anything else."""
    text = fixture_text(
        data.draw(st.sampled_from(["nested-sm80-triton3.6", "lock_add-sm80-triton3.6"]))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 200)))
        piece = data.draw(
            st.sampled_from(["", "{", "}", ";", ":", "@", "/*", '"', "bra ", text[start:end] * 2])
        )
        text = text[:start] + piece + text[end:]
    try:
        listing = parse_ptx(text)
    except ParseError:
        return
    check_consistent(listing)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='{};:@.%,"/*\n\t ab1[]()', max_size=80))
def test_any_body_parses_or_raises_parse_error(text: str) -> None:
    """Random statements inside a kernel never raise anything else."""
    with contextlib.suppress(ParseError):
        check_consistent(parse_ptx(f"{HEAD}.entry k()\n{{\n{text}\n}}\n"))
