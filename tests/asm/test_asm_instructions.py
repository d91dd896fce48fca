"""Instructions of PTX: classes, registers, traffic, counts, and how a kernel is launched."""

from __future__ import annotations

from dataclasses import replace

from asmtune.ir.asm.counts import count, hottest_loop
from asmtune.ir.asm.memory import access, expected_bytes
from asmtune.ir.asm.nvptx import KernelEntry, OpClass, classify, entries, registers
from asmtune.ir.asm.program import Instruction
from asmtune.ir.asm.ptx import parse_ptx

CLASSES = {
    "tensor": (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "tcgen05.mma.cta_group::1.kind::f16 "
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
    ),
    "shared": (
        "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 ld.volatile.shared.b32 "
        "st.shared::cta.b32 ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
    ),
    "async_wait": (
        "wgmma.fence.sync.aligned wgmma.wait_group.sync.aligned "
        "tcgen05.wait::ld.sync.aligned "
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 cp.async.commit_group "
        "cp.async.wait_group cp.async.bulk.wait_group.read"
    ),
    "tensor_memory": (
        "tcgen05.ld.sync.aligned.32x32b.x128.b32 "
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"
    ),
    "fence": "tcgen05.fence::before_thread_sync fence.proxy.async.shared::cta membar.gl",
    "async_copy": "cp.async.cg.shared.global cp.async.ca.shared.global.L2::128B",
    "mbarrier": (
        "cp.async.mbarrier.arrive.noinc.shared.b64 mbarrier.try_wait.parity.shared::cta.b64"
    ),
    "bulk_copy": (
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group "
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32"
    ),
    "barrier": "bar.sync barrier.cluster.arrive.release.aligned bar.warp.sync",
    "branch": "bra.uni brx.idx call.uni trap",
    "global": "ld.global.v4.b32 st.relaxed.gpu.global.b32 ld.b32",
    "local": "ld.local.b32",
    "constant": "ld.param.b64",
    "atomic": "atom.global.gpu.acq_rel.add.f32 atom.shared.cas.b32 red.global.add.f32",
    "special": "ex2.approx.ftz.f32 div.full.f32 tanh.approx.f32",
    "integer": "div.s32 mad.wide.s32 mul.hi.u64 shf.l.wrap.b32 prmt.b32",
    "float": "fma.rn.bf16x2 add.f32x2 max.f32 abs.ftz.f32",
    "logic": "setp.lt.f32 selp.b32 and.pred lop3.b32",
    "convert": "cvt.rn.f16x2.f32 cvta.to.global.u64",
    "shuffle": "shfl.sync.bfly.b32 redux.sync.max.f32 elect.sync",
    "move": "mov.b32",
    "other": ("setmaxnreg.dec.sync.aligned.u32 tensormap.replace.tile.rank.shared::cta.b1024.b32"),
    "unknown": "frobnicate.f32 wgmma.frobnicate",
}


def test_classes() -> None:
    """An opcode's class follows from its longest known prefix, its type and its space."""
    pairs = [(opcode, kind) for kind, names in CLASSES.items() for opcode in names.split()]
    assert [pair for pair in pairs if classify(pair[0]) is not OpClass(pair[1])] == []
    assert classify("") is OpClass.UNKNOWN


def test_waiting_and_working_is_work() -> None:
    """A loop that polls and multiplies in one block is not taken for a wait."""
    text = "L: mbarrier.try_wait.b64 %p, [%r1]; fma.rn.f32 %f1, %f1, %f1, %f1; @%p bra L; ret;"
    program = parse_ptx(f".version 8.7\n.entry k()\n{{\n{text}\n}}\n").entry
    assert [(loop.role, loop.depth) for loop in program.loops] == [("work", 1)]


def found(opcode: str, text: str, predicate: str | None = None) -> tuple[list[str], list[str]]:
    """Registers read and written, in order of name."""
    read, written = registers(Instruction(0, 1, opcode, predicate, text, None))
    return sorted(read), sorted(written)


def test_guards_are_read() -> None:
    """An instruction waits for its guard, negated or not."""
    assert found("mov.b32", "%r1, %r2", "%p1") == (["%p1", "%r2"], ["%r1"])
    assert found("st.global.b32", "[%rd1], %r1", "!%p2") == (["%p2", "%r1", "%rd1"], [])


def test_wgmma_adds_to_its_accumulators() -> None:
    """The accumulators of wgmma are read as well as written, its descriptors read only."""
    opcode = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    text = "{%r1,%r2,%r3,%r4}, %rd1, %rd2, %p1, 1, 1, 0, 1"
    sums = ["%r1", "%r2", "%r3", "%r4"]
    assert found(opcode, text) == (sorted(["%p1", "%rd1", "%rd2", *sums]), sums)


def instruction(text: str) -> Instruction:
    """Make an instruction of "opcode operands"."""
    opcode, _, operands = text.partition(" ")
    return Instruction(0, 1, opcode, None, operands, None)


ACCESSES = """
ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1] | global load 16
ld.global.nc.L1::no_allocate.v8.f32 {...}, [%rd1] | global load 32
st.shared::cta.v2.b64 [%r1], {%rd1, %rd2} | shared store 16
ld.shared.b128 %rq1, [%r1] | shared load 16
ld.param.b64 %rd1, [k_param_0] | param load 8
st.local.u8 [%r1], %rs1 | local store 1
ld.b32 %r1, [%rd1] | generic load 4
atom.global.gpu.acq_rel.add.v4.f32 {...}, [%rd1], {...} | global atomic 16
atom.shared.cas.b32 %r1, [%r2], %r3, %r4 | shared atomic 4
red.global.add.noftz.f16x2 [%rd1], %r1 | global atomic 4
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {...}, [%r1] | shared load 16
stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r1], {...} | shared store 8
cp.async.cg.shared.global [%r1], [%rd1], 0x10, %r2 | global load 16 copies
cp.async.ca.shared.global [%r1] | global load None copies
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 4096, [%r2] \
| global load 4096 copies
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier [%r1], [%rd1, {%r2, %r3}], [%r4] \
| global load None copies
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1}], [%r3] \
| global store None copies
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], 64 \
| global atomic 64 copies
tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {%r1, %r2}, [%r3 + 0], 2 | tensor load 8
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r3], {%r1} | tensor store 4
cp.async.commit_group |
cp.async.bulk.prefetch.L2.global [%rd1], 64 |
bar.sync 0 |
"""


def test_accesses() -> None:
    """Space, direction and bytes follow from the opcode and, for copies, its operands."""
    for line in ACCESSES.split("\n")[1:-1]:
        text, _, expected = line.partition(" |")
        found = access(instruction(text))
        words = []
        if found is not None:
            words = [found.space, found.direction, str(found.bytes), *["copies"] * found.copies]
        assert words == expected.split(), line


EXPECTED = {
    "mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 32768": 32768,
    "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 0x40": 64,
    "mbarrier.arrive.expect_tx.shared.b64 _, [%r1], %r2": None,
    "mbarrier.arrive.shared::cta.b64 _, [%r1], 128": None,
    "ld.global.b32 %r1, [%rd1]": None,
}


def test_expected_bytes() -> None:
    """Only what tells a barrier of bytes, in a literal, counts."""
    assert {text: expected_bytes(instruction(text)) for text in EXPECTED} == EXPECTED


def test_unknown_opcodes_are_counted() -> None:
    """An opcode that has no class is counted as unknown."""
    text = "frob.x %r1;\nfrob.x %r2;\nret;"
    counts = count(parse_ptx(f".version 8.7\n.entry k()\n{{\n{text}\n}}\n").entry)
    assert counts.by_class[OpClass.UNKNOWN] == {0: 2}


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


TEXT = """
// .visible .entry comment(.param .u64 a)
.visible .entry add( // .param .u64 no,
    .param .u64 .ptr .global .align 1 add_param_0,
    .param .b32 n, /* .param .f32 out, */
    .param .align 64 .b8 desc[128]
)
.reqntid 128, 2, 1
.reqnctapercluster 2
.maxnreg 64
{ ret; }
.entry none { ret; }
"""


def test_heads_are_read() -> None:
    """Names, bytes of parameters, threads and clusters; comments count for nothing."""
    assert entries(TEXT) == [
        KernelEntry("add", (8, 4, 128), 256, 2),
        KernelEntry("none", (), None, 1),
    ]
    assert entries("no PTX at all") == []


def test_what_does_not_fit_is_told() -> None:
    """Other parameters, threads or clusters than the kernel's; threads may be left open."""
    own = KernelEntry("add", (8, 8, 4), 128, 1)
    assert own.misfit(own) is None
    assert replace(own, threads=None).misfit(own) is None
    for other, said in [
        (replace(own, parameters=(8, 8)), "2 parameters of 8, 8 bytes, and the kernel 3"),
        (replace(own, parameters=()), "no parameters"),
        (replace(own, parameters=(8, 4, 8)), "8, 4, 8"),
        (replace(own, threads=256), "256 threads a program, and launched with 128"),
        (replace(own, programs=2), "clusters of 2"),
    ]:
        assert said in str(other.misfit(own))
