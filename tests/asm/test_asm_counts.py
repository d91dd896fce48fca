"""Counts over programs, against what grep finds in the dumps."""

from __future__ import annotations

from asm_dumps import fixture_listing

from asmtune.ir.asm.counts import count, hottest_loop, mnemonic_counts
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.asm.ptx import parse_ptx


def test_loop_count_is_the_depths_part() -> None:
    """Counting the blocks of the only loop gives what the whole has at depth 1."""
    program = fixture_listing("gemm-sm80-triton3.6").entry
    (loop,) = program.loops
    whole, part = count(program), count(program, loop.blocks)
    assert part.instructions == {1: whole.instructions[1]}
    assert part.thread_bytes["global", "load"] == {1: 128}


def test_unknown_opcodes_are_named() -> None:
    """An opcode that has no class is counted under its name."""
    text = "frob.x %r1;\nfrob.x %r2;\nret;"
    counts = count(parse_ptx(f".version 8.7\n.entry k()\n{{\n{text}\n}}\n").entry)
    assert counts.unknown == {"frob.x": 2}
    assert counts.by_class[OpClass.UNKNOWN] == {0: 2}


def test_mnemonics_keep_to_their_names() -> None:
    """`ret` is not found in another opcode, nor `cp.async` in cp.async.bulk."""
    text = "cp.async.bulk.commit_group;\nretfoo;\nbrx.idx %r1, T;\nT: .branchtargets L;\nL: ret;"
    found = mnemonic_counts(parse_ptx(f".version 8.7\n.entry k()\n{{\n{text}\n}}\n"))
    assert {mnemonic: number for mnemonic, number in found.items() if number} == {
        "cp.async.bulk": 1,
        "ret": 1,
    }


TWO_LOOPS = """.version 8.7
.entry k()
{
LONG:
add.s32 %r1, %r1, 1;
add.s32 %r2, %r2, 1;
setp.lt.s32 %p, %r1, 2;
@%p bra LONG;
OFTEN:
add.s32 %r3, %r3, 1;
setp.lt.s32 %p, %r3, 30;
@%p bra OFTEN;
ret;
}
"""


def test_hottest_loop_is_the_most_executed_where_that_is_known() -> None:
    """Of two equally deep loops the longer one; told how often each runs, the one that runs on."""
    program = parse_ptx(TWO_LOOPS).entry

    def label(times: list[float] | None) -> str | None:
        loop = hottest_loop(program, times=times)
        return None if loop is None else program.blocks[loop.header].label

    labels = [program.blocks[loop.header].label for loop in program.loops]
    times = [2.0 if name == "LONG" else 30.0 for name in labels]
    assert label(None) == "LONG"
    assert label(times) == "OFTEN"


def test_no_loop() -> None:
    """A kernel without a loop has no hottest one, and one that only waits neither."""
    wait = "L: mbarrier.try_wait.b64 %p, [%r1];\n@!%p bra L;\nret;"
    for text in ("ret;", wait):
        program = parse_ptx(f".version 8.7\n.entry k()\n{{\n{text}\n}}\n").entry
        assert hottest_loop(program) is None
