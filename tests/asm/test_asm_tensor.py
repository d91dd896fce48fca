"""Tensor instructions: shapes, types, FLOPs, and the FLOPs of whole tiles."""

from __future__ import annotations

from asmtune.ir.asm.counts import count
from asmtune.ir.asm.program import Instruction
from asmtune.ir.asm.ptx import parse_ptx
from asmtune.ir.asm.tensor import TensorOp, tensor_op, tensor_ops


def op(opcode: str, descriptor: int | None = None) -> TensorOp | None:
    """Describe an opcode without operands."""
    return tensor_op(Instruction(0, 1, opcode, None, "", None), descriptor)


SHAPES = """
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 mma.sync 16 8 16 f16
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 mma.sync 16 8 8 tf32
mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 mma.sync 16 8 32 e4m3
mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0 \
mma.sync 16 8 64 e2m1
mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f16.bf16.bf16.f16 mma.sync 16 8 32 bf16
wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16 wmma 16 16 16 f16
wmma.mma.sync.aligned.row.col.m8n32k16.s32.u8.u8.s32 wmma 8 32 16 u8
wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 wgmma 64 256 16 bf16
"""
"""Opcodes, each with its unit, M, N, K, and the type of A."""


def test_named_shapes() -> None:
    """Shape, type and 2 m n k are read from the name."""
    for line in SHAPES.split("\n")[1:-1]:
        opcode, kind, *sizes, a_type = line.split()
        m, n, k = map(int, sizes)
        expected = TensorOp(kind, m, n, k, a_type)
        assert op(opcode) == expected
        assert expected.flops == 2 * m * n * k


# Descriptors of real dumps, and synthetic ones after the PTX ISA's table.
DESCRIPTORS = [
    ("1.kind::f16", 136380432, (128, 128, 16, "f16")),
    ("1.kind::mxf8f6f4.block_scale.scale_vec::1X", 144769024, (128, 128, 32, "e4m3")),
    ("2.kind::tf32", 16 << 24 | 32 << 17 | 2 << 10 | 2 << 7 | 1 << 4, (256, 256, 8, "tf32", 2)),
    ("1.kind::i8.sp", 4 << 24 | 8 << 17 | 1 << 10 | 2 << 4, (64, 64, 64, "u8")),
    ("1.kind::mxf4", 1 << 31 | 8 << 24 | 16 << 17 | 1 << 10 | 1 << 7, (128, 128, 96, "e2m1")),
    ("1.kind::f8f6f4", None, (None, None, 32, None)),
]


def test_descriptors() -> None:
    """Shape and type of tcgen05.mma are bits of its descriptor; without it they are None."""
    for name, descriptor, expected in DESCRIPTORS:
        found = op(f"tcgen05.mma.cta_group::{name}", descriptor)
        assert found == TensorOp("tcgen05", *expected), name


def test_descriptor_with_two_values_is_unknown() -> None:
    """A register that holds two constants tells no shape, and no FLOPs are counted."""
    text = (
        "mov.b32 %r1, 136380432;\n@%p1 bra L;\nmov.b32 %r1, 136380416;\n"
        "L: tcgen05.mma.cta_group::1.kind::f16 [%r2], %rd1, %rd2, %r1, %p2;\nret;"
    )
    program = parse_ptx(f".version 8.7\n.entry k()\n{{\n{text}\n}}\n").entry
    (found,) = tensor_ops(program).values()
    assert found.flops is None
    assert count(program).cta_flops == {}
