"""Memory traffic of single instructions."""

from __future__ import annotations

import pytest

from asmtune.ir.asm.memory import AsmAccess, access, expected_bytes
from asmtune.ir.asm.program import Instruction


def instruction(text: str) -> Instruction:
    """Make an instruction of "opcode operands"."""
    opcode, _, operands = text.partition(" ")
    return Instruction(0, 1, opcode, None, operands, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1]", AsmAccess("global", "load", 16)),
        ("ld.global.nc.L1::no_allocate.v8.f32 {...}, [%rd1]", AsmAccess("global", "load", 32)),
        ("ld.global.b16 {%rs1}, [%rd1]", AsmAccess("global", "load", 2)),
        ("st.shared::cta.v2.b64 [%r1], {%rd1, %rd2}", AsmAccess("shared", "store", 16)),
        ("ld.shared.b128 %rq1, [%r1]", AsmAccess("shared", "load", 16)),
        ("ld.param.b64 %rd1, [k_param_0]", AsmAccess("param", "load", 8)),
        ("st.local.u8 [%r1], %rs1", AsmAccess("local", "store", 1)),
        ("ld.b32 %r1, [%rd1]", AsmAccess("generic", "load", 4)),
        (
            "atom.global.gpu.acq_rel.add.v4.f32 {...}, [%rd1], {...}",
            AsmAccess("global", "atomic", 16),
        ),
        ("atom.shared.cas.b32 %r1, [%r2], %r3, %r4", AsmAccess("shared", "atomic", 4)),
        ("red.global.add.noftz.f16x2 [%rd1], %r1", AsmAccess("global", "atomic", 4)),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {...}, [%r1]", AsmAccess("shared", "load", 16)),
        ("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r1], {...}", AsmAccess("shared", "store", 8)),
        (
            "cp.async.cg.shared.global [%r1], [%rd1], 0x10, %r2",
            AsmAccess("global", "load", 16, copies=True),
        ),
        ("cp.async.ca.shared.global [%r1], [%rd1], 4", AsmAccess("global", "load", 4, copies=True)),
        ("cp.async.ca.shared.global [%r1]", AsmAccess("global", "load", None, copies=True)),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%r1], [%rd1], 4096, [%r2]",
            AsmAccess("global", "load", 4096, copies=True),
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%r1], [%rd1, {%r2, %r3}], [%r4]",
            AsmAccess("global", "load", None, copies=True),
        ),
        (
            "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3]",
            AsmAccess("global", "store", None, copies=True),
        ),
        (
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], 64",
            AsmAccess("global", "atomic", 64, copies=True),
        ),
        (
            "tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {%r1, %r2}, [%r3 + 0], 2",
            AsmAccess("tensor", "load", 8),
        ),
        ("tcgen05.st.sync.aligned.32x32b.x1.b32 [%r3], {%r1}", AsmAccess("tensor", "store", 4)),
        ("cp.async.commit_group", None),
        ("cp.async.bulk.prefetch.L2.global [%rd1], 64", None),
        ("add.s32 %r1, %r2, %r3", None),
        ("bar.sync 0", None),
    ],
)
def test_accesses(text: str, expected: AsmAccess | None) -> None:
    """Space, direction and bytes follow from the opcode and, for copies, its operands."""
    assert access(instruction(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 32768", 32768),
        ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 0x40", 64),
        ("mbarrier.arrive.expect_tx.shared.b64 _, [%r1], %r2", None),
        ("mbarrier.arrive.shared::cta.b64 _, [%r1], 128", None),
        ("ld.global.b32 %r1, [%rd1]", None),
    ],
)
def test_expected_bytes(text: str, expected: int | None) -> None:
    """Only what tells a barrier of bytes, in a literal, counts."""
    assert expected_bytes(instruction(text)) == expected
