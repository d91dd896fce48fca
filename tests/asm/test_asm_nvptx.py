"""Classes of PTX opcodes and roles of loops."""

from __future__ import annotations

import pytest
from asm_dumps import fixture_listing, ptx_names

from asmtune.ir.asm.nvptx import OpClass, classify
from asmtune.ir.asm.ptx import parse_ptx


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", OpClass.TENSOR),
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", OpClass.TENSOR),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", OpClass.TENSOR),
        ("tcgen05.mma.cta_group::1.kind::f16", OpClass.TENSOR),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", OpClass.TENSOR),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", OpClass.SHARED),
        ("wgmma.fence.sync.aligned", OpClass.ASYNC_WAIT),
        ("wgmma.wait_group.sync.aligned", OpClass.ASYNC_WAIT),
        ("tcgen05.wait::ld.sync.aligned", OpClass.ASYNC_WAIT),
        ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64", OpClass.ASYNC_WAIT),
        ("tcgen05.ld.sync.aligned.32x32b.x128.b32", OpClass.TENSOR_MEMORY),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32", OpClass.TENSOR_MEMORY),
        ("tcgen05.fence::before_thread_sync", OpClass.FENCE),
        ("cp.async.cg.shared.global", OpClass.ASYNC_COPY),
        ("cp.async.ca.shared.global.L2::128B", OpClass.ASYNC_COPY),
        ("cp.async.commit_group", OpClass.ASYNC_WAIT),
        ("cp.async.wait_group", OpClass.ASYNC_WAIT),
        ("cp.async.mbarrier.arrive.noinc.shared.b64", OpClass.MBARRIER),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", OpClass.BULK_COPY),
        ("cp.async.bulk.wait_group.read", OpClass.ASYNC_WAIT),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", OpClass.BULK_COPY),
        ("bar.sync", OpClass.BARRIER),
        ("barrier.cluster.arrive.release.aligned", OpClass.BARRIER),
        ("bar.warp.sync", OpClass.BARRIER),
        ("mbarrier.try_wait.parity.shared::cta.b64", OpClass.MBARRIER),
        ("bra.uni", OpClass.BRANCH),
        ("brx.idx", OpClass.BRANCH),
        ("call.uni", OpClass.BRANCH),
        ("trap", OpClass.BRANCH),
        ("ld.global.v4.b32", OpClass.GLOBAL),
        ("ld.volatile.shared.b32", OpClass.SHARED),
        ("st.relaxed.gpu.global.b32", OpClass.GLOBAL),
        ("st.shared::cta.b32", OpClass.SHARED),
        ("ld.local.b32", OpClass.LOCAL),
        ("ld.param.b64", OpClass.CONSTANT),
        ("ld.b32", OpClass.GLOBAL),
        ("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", OpClass.SHARED),
        ("atom.global.gpu.acq_rel.add.f32", OpClass.ATOMIC),
        ("atom.shared.cas.b32", OpClass.ATOMIC),
        ("red.global.add.f32", OpClass.ATOMIC),
        ("fence.proxy.async.shared::cta", OpClass.FENCE),
        ("membar.gl", OpClass.FENCE),
        ("ex2.approx.ftz.f32", OpClass.SPECIAL),
        ("div.full.f32", OpClass.SPECIAL),
        ("div.s32", OpClass.INTEGER),
        ("tanh.approx.f32", OpClass.SPECIAL),
        ("fma.rn.bf16x2", OpClass.FLOAT),
        ("add.f32x2", OpClass.FLOAT),
        ("max.f32", OpClass.FLOAT),
        ("abs.ftz.f32", OpClass.FLOAT),
        ("mad.wide.s32", OpClass.INTEGER),
        ("mul.hi.u64", OpClass.INTEGER),
        ("shf.l.wrap.b32", OpClass.INTEGER),
        ("prmt.b32", OpClass.INTEGER),
        ("setp.lt.f32", OpClass.LOGIC),
        ("selp.b32", OpClass.LOGIC),
        ("and.pred", OpClass.LOGIC),
        ("lop3.b32", OpClass.LOGIC),
        ("cvt.rn.f16x2.f32", OpClass.CONVERT),
        ("cvta.to.global.u64", OpClass.CONVERT),
        ("shfl.sync.bfly.b32", OpClass.SHUFFLE),
        ("redux.sync.max.f32", OpClass.SHUFFLE),
        ("elect.sync", OpClass.SHUFFLE),
        ("mov.b32", OpClass.MOVE),
        ("setmaxnreg.dec.sync.aligned.u32", OpClass.OTHER),
        ("tensormap.replace.tile.rank.shared::cta.b1024.b32", OpClass.OTHER),
        ("frobnicate.f32", OpClass.UNKNOWN),
        ("wgmma.frobnicate", OpClass.UNKNOWN),
        ("", OpClass.UNKNOWN),
    ],
)
def test_classes(opcode: str, expected: OpClass) -> None:
    """An opcode's class follows from its longest known prefix, its type and its space."""
    assert classify(opcode) is expected


@pytest.mark.parametrize("name", ptx_names())
def test_dumps_have_no_unknown_opcode(name: str) -> None:
    """Everything that Triton emits in the dumps has a class."""
    opcodes = {i.opcode for p in fixture_listing(name).programs for i in p.instructions}
    assert {opcode for opcode in opcodes if classify(opcode) is OpClass.UNKNOWN} == set()


def roles(name: str) -> list[str]:
    """Return the roles of a dump's loops, sorted."""
    return sorted(loop.role for loop in fixture_listing(name).entry.loops)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gemm-sm80-triton3.6", ["work"]),
        ("lock_add-sm80-triton3.6", ["work"]),
        ("gemm-sm100-triton3.6", ["wait", "wait", "work"]),
        ("tma_gemm-sm90-triton3.6", ["wait", "work"]),
        ("ws_gemm-sm90-triton3.6", ["dispatch"] + ["wait"] * 8 + ["work"] * 3),
        ("ws_gemm-sm100-triton3.6", ["dispatch"] + ["wait"] * 5 + ["work"] * 2),
        ("ws_gemm-sm100-triton3.9", ["dispatch"] + ["wait"] * 5 + ["work"] * 2),
    ],
)
def test_roles_of_loops(name: str, expected: list[str]) -> None:
    """Waits and the switch of warp-specialised kernels are told from loops that work."""
    assert roles(name) == expected


def test_waiting_and_working_is_work() -> None:
    """A loop that polls and multiplies in one block is not taken for a wait."""
    text = "L: mbarrier.try_wait.b64 %p, [%r1]; fma.rn.f32 %f1, %f1, %f1, %f1; @%p bra L; ret;"
    program = parse_ptx(f".version 8.7\n.entry k()\n{{\n{text}\n}}\n").entry
    assert [(loop.role, loop.depth) for loop in program.loops] == [("work", 1)]
