"""Which registers an instruction reads and writes, against what the PTX ISA says."""

from __future__ import annotations

import re

import pytest

from asmtune.ir.asm.nvptx import registers
from asmtune.ir.asm.program import Instruction


def found(opcode: str, text: str, predicate: str | None = None) -> tuple[list[str], list[str]]:
    """Registers read and written, in order of name."""
    read, written = registers(Instruction(0, 1, opcode, predicate, text, None))
    return sorted(read), sorted(written)


@pytest.mark.parametrize(
    ("opcode", "text", "read", "written"),
    [
        ("add.s32", "%r3, %r1, %r2", "%r1 %r2", "%r3"),
        ("mov.b32", "%r1, 5", "", "%r1"),
        ("mov.u32", "%r1, %tid.x", "", "%r1"),
        ("mov.b32", "{%rs1, %rs2}, %r1", "%r1", "%rs1 %rs2"),
        ("setp.lt.s32", "%p1|%p2, %r1, %r2", "%r1 %r2", "%p1 %p2"),
        ("shfl.sync.bfly.b32", "%r2|%p1, %r1, 16, 31, -1", "%r1", "%p1 %r2"),
        ("ld.global.v2.b32", "{ %r1, %r2 }, [ %rd1 + 16 ]", "%rd1", "%r1 %r2"),
        ("ld.param.b64", "%rd1, [kernel_param_0]", "", "%rd1"),
        ("atom.global.add.f32", "%f2, [%rd1], %f1", "%f1 %rd1", "%f2"),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16", "{%r1, %r2}, [%r3]", "%r3", "%r1 %r2"),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
            "{%f1, %f2}, {%r1, %r2}, {%r3}, {%f3, %f4}",
            "%f3 %f4 %r1 %r2 %r3",
            "%f1 %f2",
        ),
    ],
)
def test_results_stand_first(opcode: str, text: str, read: str, written: str) -> None:
    """The first operand is written, be it one register, a pair or a vector; the rest is read."""
    assert found(opcode, text) == (read.split(), written.split())


@pytest.mark.parametrize(
    ("opcode", "text", "read"),
    [
        ("st.global.v2.b32", "[%rd1], {%r1, %r2}", "%r1 %r2 %rd1"),
        ("st.shared.b32", "[%r1+64], %r2", "%r1 %r2"),
        ("red.global.add.f32", "[%rd1], %f1", "%f1 %rd1"),
        ("stmatrix.sync.aligned.m8n8.x2.shared.b16", "[%r3], {%r1, %r2}", "%r1 %r2 %r3"),
        ("cp.async.cg.shared.global", "[ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2", "%r1 %r2 %rd1"),
        ("mbarrier.init.shared::cta.b64", "[%r1], 1", "%r1"),
        ("tcgen05.mma.cta_group::1.kind::f16", "[ %r1 + 0 ], %rd1, %rd2, %r2, %p1", None),
        ("bra", "$L__BB0_1", ""),
        ("bar.sync", "0", ""),
    ],
)
def test_without_a_result(opcode: str, text: str, read: str | None) -> None:
    """Stores, copies and what writes to an address give no register."""
    expected = sorted(re.findall(r"%[a-z]+\d", text)) if read is None else read.split()
    assert found(opcode, text) == (expected, [])


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
