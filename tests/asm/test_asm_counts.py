"""Counts over programs, against what grep finds in the dumps."""

from __future__ import annotations

import pytest
from asm_dumps import fixture_listing, fixture_text, ptx_names

from asmtune.ir.asm.counts import count, hottest_loop, mnemonic_counts
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.asm.ptx import parse_ptx


def test_gemm_by_depth() -> None:
    """A GEMM's loop holds all its mma, its prologue half of its copies; by hand from the text."""
    counts = count(fixture_listing("gemm-sm80-triton3.6").entry)
    assert counts.by_class[OpClass.TENSOR] == {1: 64}
    assert counts.by_class[OpClass.ASYNC_COPY] == {0: 16, 1: 8}
    assert counts.by_class[OpClass.ASYNC_WAIT] == {0: 5, 1: 3}
    assert counts.by_class[OpClass.BARRIER] == {0: 5, 1: 2}
    assert counts.by_opcode["ldmatrix.sync.aligned.m8n8.x4.shared.b16"][1] == 8
    assert counts.unit_flops == {"mma.sync": {1: 64 * 4096}}
    assert counts.cta_flops == {"mma.sync": {1: 2 * 128 * 128 * 32}}
    assert counts.thread_bytes["global", "load"] == {0: 256, 1: 128}
    assert counts.thread_bytes["shared", "load"][1] == 16 * 16
    assert counts.unresolved == 0
    assert counts.total(OpClass.TENSOR) == 64
    assert counts.total(OpClass.ATOMIC) == 0


def test_loop_count_is_the_depths_part() -> None:
    """Counting the blocks of the only loop gives what the whole has at depth 1."""
    program = fixture_listing("gemm-sm80-triton3.6").entry
    (loop,) = program.loops
    whole, part = count(program), count(program, loop.blocks)
    assert part.instructions == {1: whole.instructions[1]}
    assert part.thread_bytes["global", "load"] == {1: 128}


@pytest.mark.parametrize("name", ptx_names())
def test_counts_add_up(name: str) -> None:
    """Each instruction of a dump is counted once by depth, class and opcode."""
    program = fixture_listing(name).entry
    counts = count(program)
    total = len(program.instructions)
    assert sum(counts.instructions.values()) == total
    assert sum(sum(depths.values()) for depths in counts.by_class.values()) == total
    assert sum(sum(depths.values()) for depths in counts.by_opcode.values()) == total
    assert counts.unknown == {}
    assert counts.unresolved == 0


def test_tma_bytes() -> None:
    """Two stages before the loop and one in it expect a tile of each matrix, 32 KiB."""
    counts = count(fixture_listing("tma_gemm-sm90-triton3.6").entry)
    tile_bytes = 2 * (128 * 64 + 64 * 128)
    assert counts.tma_bytes == {0: 2 * tile_bytes, 1: tile_bytes}


def test_blackwell_peels_the_first_trip() -> None:
    """Triton multiplies the first tile before the loop on sm_100, and counts show it."""
    tile_flops = 2 * 128 * 128 * 32
    counts = count(fixture_listing("gemm-sm100-triton3.6").entry)
    assert counts.cta_flops == {"tcgen05": {0: tile_flops, 1: tile_flops}}


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("ws_gemm-sm90-triton3.6", {"wgmma": {1: 2 * 128 * 128 * 64}}),
        (
            "ws_gemm-sm100-triton3.6",
            {"tcgen05": {0: 2 * 128 * 128 * 64, 1: 2 * 128 * 128 * 64}},
        ),
        ("scaled_gemm-sm100-triton3.6", {"tcgen05": {1: 2 * 128 * 128 * 128}}),
        ("gemm_i8-sm80-triton3.6", {"mma.sync": {1: 2 * 64 * 64 * 64}}),
        ("gemm_f8-sm89-triton3.6", {"mma.sync": {1: 2 * 64 * 64 * 64}}),
    ],
)
def test_flops_of_dumps(name: str, flops: dict[str, dict[int, int]]) -> None:
    """A trip of the main loop multiplies one tile, whatever the types and the parts."""
    assert count(fixture_listing(name).entry).cta_flops == flops


def test_unknown_opcodes_are_named() -> None:
    """An opcode that has no class is counted under its name."""
    text = "frob.x %r1;\nfrob.x %r2;\nret;"
    counts = count(parse_ptx(f".version 8.7\n.entry k()\n{{\n{text}\n}}\n").entry)
    assert counts.unknown == {"frob.x": 2}
    assert counts.by_class[OpClass.UNKNOWN] == {0: 2}


# Counted with grep.
GREP = {
    "gemm-sm80-triton3.6": {"mma.sync": 64, "cp.async": 32, "bar.sync": 7, "bra": 4, "ret": 1},
    "gemm-sm90-triton3.6": {
        "wgmma.mma_async": 4,
        "cp.async": 32,
        "bar.sync": 11,
        "bra": 2,
        "ret": 1,
    },
    "calls-sm80-triton3.6": {"bra": 5, "ret": 2},
    "ws_gemm-sm100-triton3.9": {
        "tcgen05.mma": 8,
        "cp.async.bulk": 11,
        "bar.sync": 12,
        "barrier.sync": 15,
        "bra": 23,
        "ret": 1,
    },
}


@pytest.mark.parametrize("name", sorted(GREP))
def test_mnemonic_counts(name: str) -> None:
    """Whole-text counts equal grep's, all functions included."""
    found = mnemonic_counts(fixture_listing(name))
    assert {mnemonic: number for mnemonic, number in found.items() if number} == GREP[name]


def test_mnemonics_keep_to_their_names() -> None:
    """`ret` is not found in another opcode, nor `cp.async` in cp.async.bulk."""
    text = "cp.async.bulk.commit_group;\nretfoo;\nbrx.idx %r1, T;\nT: .branchtargets L;\nL: ret;"
    found = mnemonic_counts(parse_ptx(f".version 8.7\n.entry k()\n{{\n{text}\n}}\n"))
    assert {mnemonic: number for mnemonic, number in found.items() if number} == {
        "cp.async.bulk": 1,
        "ret": 1,
    }


def loop_line(name: str) -> str | None:
    """Return the label of the hottest loop's header."""
    program = fixture_listing(name).entry
    loop = hottest_loop(program)
    return None if loop is None else program.blocks[loop.header].label


def test_hottest_loop_is_the_deepest() -> None:
    """Of nested loops the inner one, not the longer outer one."""
    assert "$L__BB0_5:                              // %.lr.ph" in fixture_text(
        "nested-sm80-triton3.6"
    )
    assert loop_line("nested-sm80-triton3.6") == "$L__BB0_5"


def test_hottest_loop_multiplies() -> None:
    """Among the equally deep loops of a warp-specialised kernel, one that multiplies."""
    program = fixture_listing("ws_gemm-sm100-triton3.6").entry
    loop = hottest_loop(program)
    assert loop is not None
    assert loop.role == "work"
    assert "tcgen05" in count(program, loop.blocks).cta_flops


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
