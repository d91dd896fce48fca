"""AMDGCN: instructions by class, products, accesses and waits; a text's functions and resources."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmtune.base.errors import ParseError
from asmtune.ir.asm.amdgcn import parse_amdgcn, read_resources
from asmtune.ir.asm.amdgpu import (
    amdgpu_access,
    amdgpu_tensor_op,
    classify_amdgpu,
    wait_count,
)
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.asm.program import Instruction

TEXT = """\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
\t.text
\t.globl\tscaled
\t.type\tscaled,@function
scaled:                                 ; @scaled
.Lfunc_begin0:
\t.file\t1 "/src" "scaled.py"
\t.loc\t1 3 0 prologue_end              ; scaled.py:3:0
\ts_load_dwordx4 s[0:3], s[4:5], 0x0
\ts_mov_b32 s6, 0
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
\t.loc\t1 5 9                           ; scaled.py:5:9
\tbuffer_load_dwordx4 v[2:5], v1, s[0:3], 0 offen
\tbuffer_load_dword v1, s[0:3], 0 offen lds
\ts_waitcnt vmcnt(0)
\tv_mfma_f32_32x32x8_f16 a[0:15], v[2:3], v[4:5], a[0:15]
\tbuffer_store_dword v9, off, s[0:3], 0 offset:4 ; 4-byte Folded Spill
\ts_add_i32 s6, s6, 1
\ts_cmp_lt_i32 s6, 8
\ts_cbranch_scc1 .LBB0_1
; %bb.2:
\t.loc\t1 0 9 is_stmt 0
\tglobal_store_dwordx2 v0, v[2:3], s[2:3]
\ts_endpgm
.Lfunc_end0:
\t.amdhsa_kernel scaled
\t.end_amdhsa_kernel
; codeLenInByte = 144
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     16
    .args:
      - .offset:         0
        .size:           8
        .value_kind:     global_buffer
    .group_segment_fixed_size: 0
    .max_flat_workgroup_size: 256
    .name:           scaled
    .private_segment_fixed_size: 8
    .sgpr_count:     14
    .symbol:         scaled.kd
    .vgpr_count:     28
amdhsa.target:   amdgcn-amd-amdhsa--gfx942
...
\t.end_amdgpu_metadata
"""


def one(text: str) -> Instruction:
    """Return an instruction of its opcode and operands."""
    opcode, _, operands = text.partition(" ")
    return Instruction(0, 1, opcode, None, operands, None)


CLASSES = {
    "tensor": "v_mfma_f32_32x32x8_f16 v_smfmac_f32_16x16x32_f16 v_wmma_f32_16x16x16_f16",
    "shared": "ds_read_b64_tr_b16 ds_write2st64_b64 ds_load_b128",
    "shuffle": "ds_bpermute_b32 v_mov_b32_dpp v_readfirstlane_b32",
    "atomic": "ds_add_rtn_u32 global_atomic_pk_add_bf16 buffer_atomic_add_f32",
    "global": "buffer_load_dwordx4 flat_store_short",
    "async_copy": "buffer_load_dword_lds global_load_lds_dwordx4",
    "local": "scratch_load_dwordx4",
    "constant": "s_load_dwordx8",
    "barrier": "s_barrier s_barrier_signal",
    "async_wait": "s_waitcnt s_wait_loadcnt",
    "branch": "s_cbranch_vccnz s_endpgm",
    "other": "s_add_i32 s_nop",
    "special": "v_exp_f32_e32 v_rsq_f32_e32",
    "float": "v_fma_f32 v_pk_mul_f16 v_max3_f32",
    "integer": "v_add_u32_e32 v_lshl_add_u64 v_mul_hi_u32 v_perm_b32",
    "logic": "v_cmp_lt_f32_e32 v_cndmask_b32_e64",
    "convert": "v_cvt_f32_bf16_e32",
    "move": "v_mov_b32_e32 v_accvgpr_read_b32",
    "fence": "buffer_inv",
    "unknown": "warp_drive v_novelty",
}


def test_classes() -> None:
    """Each opcode has the class of the unit that does it; a scalar one is of the scalar unit."""
    pairs = [(opcode, kind) for kind, names in CLASSES.items() for opcode in names.split()]
    assert [one for one in pairs if classify_amdgpu(one[0]) is not OpClass(one[1])] == []


# The ISA guides' tables "MFMA": 2 x M x N x K x blocks, and the type of the first matrix.
PRODUCTS = {
    "v_mfma_f32_32x32x8_f16": (2 * 32 * 32 * 8, "f16"),
    "v_mfma_f32_16x16x16_bf16": (2 * 16 * 16 * 16, "bf16"),
    "v_mfma_f32_32x32x8bf16_1k": (2 * 32 * 32 * 8, "bf16"),
    "v_mfma_f32_32x32x4f16": (2 * 2 * 32 * 32 * 4, "f16"),
    "v_mfma_f32_16x16x1f32": (4 * 2 * 16 * 16, "f32"),
    "v_mfma_f32_4x4x4f16": (16 * 2 * 4 * 4 * 4, "f16"),
    "v_mfma_f32_32x32x4_xf32": (2 * 32 * 32 * 4, "xf32"),
    "v_mfma_f64_16x16x4_f64": (2 * 16 * 16 * 4, "f64"),
    "v_mfma_f64_4x4x4f64": (4 * 2 * 4 * 4 * 4, "f64"),
    "v_mfma_i32_32x32x16_i8": (2 * 32 * 32 * 16, "s8"),
    "v_mfma_f32_32x32x16_fp8_bf8": (2 * 32 * 32 * 16, "e4m3"),
    "v_mfma_f32_16x16x128_f8f6f4": (2 * 16 * 16 * 128, "e4m3"),
    "v_mfma_scale_f32_32x32x64_f8f6f4 cbsz:4 blgp:4": (2 * 32 * 32 * 64, "e2m1"),
    "v_mfma_f32_16x16x128_f8f6f4 cbsz:2": (65536, "e2m3"),
    "v_smfmac_f32_16x16x32_f16": (2 * 16 * 16 * 32, "f16"),
    "v_wmma_f32_16x16x16_bf16": (2 * 16**3, "bf16"),
}


def test_flops_of_a_product() -> None:
    """A matrix instruction's FLOPs follow from its shape and its blocks, its type from its name."""
    for text, (flops, operand) in PRODUCTS.items():
        op = amdgpu_tensor_op(one(text))
        assert op is not None, text
        assert (op.flops, op.a_type) == (flops, operand), text
        # 256 threads are 4 wavefronts of 64, or 8 of 32.
        assert op.flops_per_cta(256) == flops * (8 if op.kind == "wmma" else 4), text


ACCESSES = """
ds_read_b128 shared load 16
ds_read_b64_tr_b16 shared load 8
ds_read2_b32 shared load 8
ds_read2st64_b64 shared load 16
ds_load_2addr_b64 shared load 16
ds_read_u16_d16_hi shared load 2
ds_write_b16 shared store 2
ds_write2_b64 shared store 16
global_load_dwordx3 global load 12
global_store_short_d16_hi global store 2
buffer_store_dwordx4 global store 16
global_load_lds_dwordx4 global load 16 copies
buffer_load_dword_lds global load 4 copies
global_atomic_pk_add_f16 global atomic 4
global_atomic_add_x2 global atomic 8
buffer_atomic_cmpswap global atomic 4
ds_add_f32 shared atomic 4
scratch_store_dwordx2 local store 8
s_load_dwordx8 const load 32
"""


def test_accesses() -> None:
    """The width of an access is that of the registers it fills, or of the type it names."""
    for line in ACCESSES.split("\n")[1:-1]:
        opcode, *expected = line.split()
        found = amdgpu_access(one(opcode))
        assert found is not None, line
        words = [found.space, found.direction, str(found.bytes), *["copies"] * found.copies]
        assert words == expected, line


WAITS = {
    "s_waitcnt vmcnt(3) lgkmcnt(0)": 3,
    "s_waitcnt lgkmcnt(0)": None,
    "s_wait_loadcnt 0x2": 2,
    "s_wait_loadcnt_dscnt 0x102": 1,
    "s_wait_dscnt 0x0": None,
}


def test_waits() -> None:
    """A wait names the loads it leaves open, in gfx12's split forms too; or is for the LDS."""
    assert {text: wait_count(one(text)) for text in WAITS} == WAITS


def test_a_text() -> None:
    """A module's kernel has its instructions with their lines, its blocks and its loop."""
    listing = parse_amdgcn(TEXT)
    kernel = listing.entry
    assert (kernel.name, kernel.is_entry, kernel.threads) == ("scaled", True, 256)
    assert listing.files == {1: "/src/scaled.py"}
    assert listing.directives["target"] == "gfx942"
    opcodes = [item.opcode for item in kernel.instructions]
    # Copies to the LDS and spills are told from loads and stores by a modifier and a remark.
    assert opcodes[2:4] == ["buffer_load_dwordx4", "buffer_load_dword_lds"]
    assert opcodes[6] == "scratch_store_dword"
    assert [item.source for item in kernel.instructions[1:3]] == [(1, 3), (1, 5)]
    (loop,) = kernel.loops
    assert (kernel.blocks[loop.header].label, loop.depth) == (".LBB0_1", 1)
    assert [kernel.depth_of(i) for i in (0, 2, 9, 10)] == [0, 1, 1, 0]


@pytest.mark.slow(seconds=2)
@given(st.integers(0, len(TEXT)), st.integers(0, 40), st.text(max_size=8))
def test_any_damage_is_a_parse_error(place: int, length: int, put: str) -> None:
    """A text with a piece replaced is read, or refused; nothing else is raised."""
    text = TEXT[:place] + put + TEXT[place + length :]
    try:
        entry = parse_amdgcn(text).entry
        read_resources(text, entry.name)
    except ParseError:
        pass
