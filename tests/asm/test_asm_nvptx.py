"""Classes of PTX opcodes and roles of loops."""

from __future__ import annotations

from asmtune.ir.asm.nvptx import OpClass, classify
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
