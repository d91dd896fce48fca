"""AMDGCN opcodes and operands: classes, registers, memory accesses, matrix products.

After AMD's instruction set guides of CDNA 2, 3 and 4 and RDNA 3 and 4. An unknown opcode is
`OpClass.UNKNOWN`, not an error. Scalar arithmetic (`s_*`), which a unit of its own does, is
`OpClass.OTHER`; what a vector unit does has a class of its kind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from asmtune.ir.asm.counts import InstructionSet
from asmtune.ir.asm.memory import AsmAccess, Direction
from asmtune.ir.asm.memory import Space as MemorySpace
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.asm.program import AsmFunction, Instruction
from asmtune.ir.asm.tensor import TensorKind, TensorOp, literal_value

# The longest beginning of an opcode decides.
_BEGINNINGS: Final = {
    OpClass.TENSOR: "v_mfma_ v_smfmac_ v_wmma_ v_swmmac_",
    OpClass.ASYNC_WAIT: "s_waitcnt s_wait_",
    OpClass.BARRIER: "s_barrier",
    OpClass.BRANCH: "s_branch s_cbranch s_endpgm s_setpc s_swappc s_call s_trap s_rfe",
    OpClass.CONSTANT: "s_load_ s_buffer_load_ s_scratch_load_ s_prefetch_",
    OpClass.GLOBAL: "buffer_load_ buffer_store_ global_load_ global_store_ flat_load_ flat_store_"
    " tbuffer_ image_ s_store_ s_buffer_store_",
    OpClass.SHARED: "ds_read ds_write ds_load ds_store ds_consume ds_append",
    OpClass.LOCAL: "scratch_",
    OpClass.ATOMIC: "buffer_atomic_ global_atomic_ flat_atomic_ ds_add ds_sub ds_rsub ds_inc ds_dec"
    " ds_min ds_max ds_and ds_or ds_xor ds_mskor ds_wrxchg ds_cmpst ds_cmpstore ds_wrap ds_pk_add"
    " ds_storexchg ds_cond ds_condxchg s_atomic_",
    OpClass.FENCE: "buffer_wbl2 buffer_inv buffer_wbinvl1 buffer_gl global_wb global_inv"
    " s_dcache_ s_icache_ s_gl1_",
    OpClass.SHUFFLE: "ds_bpermute ds_permute ds_swizzle v_readlane v_writelane v_readfirstlane"
    " v_permlane v_mov_b32_dpp v_permlanex16",
    OpClass.MOVE: "v_mov_ v_accvgpr_ v_swap_ v_nop v_movrel v_pk_mov_ v_dual_mov",
    OpClass.SPECIAL: "v_exp_ v_log_ v_rcp_ v_rsq_ v_sqrt_ v_sin_ v_cos_ v_s_exp v_s_log v_s_rcp"
    " v_s_rsq v_s_sqrt v_tanh_ v_prng_",
    OpClass.CONVERT: "v_cvt_ v_fract_ v_frexp_ v_prng",
    OpClass.LOGIC: "v_and v_or v_xor v_xnor v_not v_cndmask v_cmp v_bfi v_dual_cndmask v_bitop"
    " v_cmpx",
    OpClass.INTEGER: "v_lshl v_lshr v_ashr v_bfe v_alignbit v_alignbyte v_perm_ v_bfm v_bfrev v_ffb"
    " v_bcnt v_mbcnt v_sad v_msad v_qsad v_mqsad v_mad_u v_mad_i v_mul_lo v_mul_hi v_add_co v_addc"
    " v_sub_co v_subb v_subrev_co v_subbrev v_add3 v_dot v_lerp v_cls v_clz v_ctz",
    OpClass.FLOAT: "v_fma v_pk_fma v_pk_mul_f v_pk_add_f v_mac v_mad_f v_mad_mix v_div_ v_ldexp"
    " v_trunc v_floor v_ceil v_rndne v_med3_f v_dual_",
    OpClass.OTHER: "s_",
}
_CLASSES: Final = {name: kind for kind, names in _BEGINNINGS.items() for name in names.split()}
_TYPED: Final = re.compile(r"_(?:pk_)?(b?f|[iub])\d+")

JUMPS: Final = frozenset({"s_branch", "s_endpgm", "s_endpgm_saved", "s_setpc_b64", "s_rfe_b64"})
"""Opcodes that end a basic block and never fall through; `s_cbranch_*` end one and may."""


def is_jump(opcode: str) -> bool:
    """Return whether an opcode ends a basic block; a call does not, since it comes back."""
    return opcode in JUMPS or opcode.startswith("s_cbranch")


@lru_cache(maxsize=4096)
def classify_amdgpu(opcode: str) -> OpClass:
    """Return the class of an AMDGCN opcode, such as `v_mfma_f32_32x32x8_f16`.

    A load that goes to the LDS (`lds` among its modifiers) is an asynchronous copy; the parser
    appends the modifier to the opcode.
    """
    if opcode.endswith("_lds") or "_load_lds_" in opcode:
        return OpClass.ASYNC_COPY
    for end in range(len(opcode), 1, -1):
        kind = _CLASSES.get(opcode[:end])
        if kind is not None:
            return kind
    if not opcode.startswith("v_"):
        return OpClass.UNKNOWN
    typed = _TYPED.search(opcode)
    if typed is None:
        return OpClass.UNKNOWN
    return {"f": OpClass.FLOAT, "bf": OpClass.FLOAT, "b": OpClass.LOGIC}.get(
        typed[1], OpClass.INTEGER
    )


_SIZES: Final = {
    "ubyte": 1,
    "sbyte": 1,
    "byte": 1,
    "short": 2,
    "ushort": 2,
    "sshort": 2,
    "u8": 1,
    "i8": 1,
    "b8": 1,
    "d16": 2,
    "u16": 2,
    "i16": 2,
    "b16": 2,
    "dword": 4,
    "dwordx2": 8,
    "dwordx3": 12,
    "dwordx4": 16,
    "dwordx8": 32,
    "dwordx16": 64,
    "b32": 4,
    "b64": 8,
    "b96": 12,
    "b128": 16,
    "addtid": 4,
}
_TYPE_BITS: Final = re.compile(r"(?:bf|[fiub])(\d+)")
_TWICE: Final = ("read2", "write2", "2addr", "rd2", "wr2")
_SPACES: Final[dict[str, MemorySpace]] = {
    "buffer": "global",
    "tbuffer": "global",
    "global": "global",
    "flat": "generic",
    "ds": "shared",
    "scratch": "local",
    "s": "const",
}


def amdgpu_access(instruction: Instruction) -> AsmAccess | None:
    """Describe the memory access of an instruction, in bytes a lane; None if it makes none."""
    return _access(instruction.opcode)


@lru_cache(maxsize=1024)
def _access(opcode: str) -> AsmAccess | None:
    kind = classify_amdgpu(opcode)
    if kind not in _MOVES:
        return None
    bare = opcode.removesuffix("_lds")
    parts = bare.split("_")
    space = _SPACES.get(parts[0], "generic")
    copies = kind is OpClass.ASYNC_COPY
    direction: Direction = "load"
    if kind is OpClass.ATOMIC:
        direction = "atomic"
    elif any(word in bare for word in ("store", "write")):
        direction = "store"
    size = _size(parts)
    if size is not None and any(p.startswith(_TWICE) for p in parts):
        size *= 2
    return AsmAccess(space, direction, size, copies)


_MOVES: Final = frozenset(
    {
        OpClass.GLOBAL,
        OpClass.SHARED,
        OpClass.LOCAL,
        OpClass.ATOMIC,
        OpClass.ASYNC_COPY,
        OpClass.CONSTANT,
    }
)


def _size(parts: Sequence[str]) -> int | None:
    """Return the bytes of one element, from an opcode's last part that names a size.

    `d16` halves tell where in a register two bytes go, so that a byte before them decides.
    """
    named = [_SIZES[part] for part in parts if part in _SIZES]
    if named:
        return min(named) if "d16" in parts else named[0]
    typed = [match for part in parts if (match := _TYPE_BITS.fullmatch(part))]
    if typed:
        # A packed atomic updates two elements of 16 bits; x2 updates a pair.
        bits = int(typed[-1][1]) * (2 if "pk" in parts else 1)
        return bits // 8
    if "x2" in parts:
        return 8
    return 4 if "atomic" in parts else None


_SHAPE: Final = re.compile(
    r"v_(mfma|smfmac|wmma|swmmac)(?:_scale)?(?:_ld_scale)?_(\w+?)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?(\w*)"
)
_MODIFIER: Final = re.compile(r"\b(cbsz|blgp|matrix_a_fmt|matrix_b_fmt):(\w+)")
_NARROW: Final = {"0": "e4m3", "1": "e5m2", "2": "e2m3", "3": "e3m2", "4": "e2m1"}
_NAMES: Final = {
    "f16": "f16",
    "bf16": "bf16",
    "bf16_1k": "bf16",
    "xf32": "xf32",
    "f32": "f32",
    "f64": "f64",
    "i8": "s8",
    "iu8": "s8",
    "iu4": "s4",
    "fp8": "e4m3",
    "bf8": "e5m2",
}


def amdgpu_tensor_op(instruction: Instruction) -> TensorOp | None:
    """Describe a matrix instruction of one wavefront; None for any other.

    `m` holds the rows of all blocks where one instruction multiplies several.
    """
    if classify_amdgpu(instruction.opcode) is not OpClass.TENSOR:
        return None
    return _tensor(instruction.opcode, instruction.text if "f8f6f4" in instruction.opcode else "")


@lru_cache(maxsize=1024)
def _tensor(opcode: str, text: str) -> TensorOp | None:
    match = _SHAPE.match(opcode)
    if match is None:
        return None
    family, _, *sizes, blocks, operand = match.groups()
    m, n, k = map(int, sizes)
    count = int(blocks) if blocks else _blocks(m, k, operand)
    kind: TensorKind = "mfma" if family in ("mfma", "smfmac") else "wmma"
    return TensorOp(kind, m * count, n, k, _operand_type(operand, text))


def _operand_type(operand: str, text: str) -> str | None:
    """Return the element type of the first matrix."""
    if operand == "f8f6f4":
        return _NARROW.get(dict(_MODIFIER.findall(text)).get("cbsz", "0"))
    return _NAMES.get(operand) or _NAMES.get(operand.split("_")[0])


def _blocks(m: int, k: int, operand: str) -> int:
    """Return the blocks of an instruction whose name has no count, as those of gfx908 and gfx90a.

    A square of one block takes as many K as its registers hold; a shorter K leaves room for more.
    """
    if m == 4:
        return 16 if operand != "f64" else 4
    single = {"f32": 1, "f16": 4, "bf16": 2, "bf16_1k": 4, "i8": 4}
    if k != single.get(operand):
        return 1
    return {16: 4, 32: 2}.get(m, 1)


_RANGE: Final = re.compile(r"\b([vsa])(?:(\d+)\b|\[(\d+):(\d+)\])|\b(vcc|exec|scc|m0)\b")
_NO_RESULT: Final = frozenset(
    {OpClass.BARRIER, OpClass.BRANCH, OpClass.FENCE, OpClass.ASYNC_WAIT, OpClass.ASYNC_COPY}
)


_ADDS_TO_RESULT: Final = re.compile(
    r"v_(?:pk_)?(?:fmac|mac|smfmac|dot\d+c)_|s_fmac_|v_writelane_|\w+_d16_hi\b"
).match
"""Opcodes that keep or add to what their destination holds (AMD's instruction set guides): a
product's sum has no operand of its own, and a lane or half of a register leaves the others."""


def amdgpu_registers(instruction: Instruction) -> tuple[list[str], list[str]]:
    """Return the registers read and those written; the destination is first.

    Each register of a wide operand (`v[2:17]`) is named, so that parts of it are followed.
    """
    kind = classify_amdgpu(instruction.opcode)
    opcode = instruction.opcode
    operands = instruction.operands
    stores = any(word in opcode for word in ("store", "write_b", "write2", "ds_write"))
    if not operands or kind in _NO_RESULT or stores or opcode.startswith("s_cmp"):
        read = [name for operand in operands for name in _names(operand)]
        return read, ["scc"] if opcode.startswith("s_cmp") else []
    if kind is OpClass.ATOMIC and not opcode.startswith("ds_") and " sc0" not in instruction.text:
        return [name for operand in operands for name in _names(operand)], []
    written = _names(operands[0])
    sources = operands if _ADDS_TO_RESULT(opcode) else operands[1:]
    return [name for operand in sources for name in _names(operand)], written


@lru_cache(maxsize=4096)
def _names(operand: str) -> list[str]:
    names: list[str] = []
    for bank, one, first, last, special in _RANGE.findall(operand):
        if special:
            names.append(special)
        elif one:
            names.append(bank + one)
        else:
            names += [f"{bank}{number}" for number in range(int(first), min(int(last), 1023) + 1)]
    return names


def _tensor_ops(program: AsmFunction) -> dict[int, TensorOp]:
    ops = {item.index: amdgpu_tensor_op(item) for item in program.instructions}
    return {index: op for index, op in ops.items() if op is not None}


def _threads(program: AsmFunction) -> tuple[int | None, ...]:
    """Return the threads of a workgroup for each block: Triton gives no wavefront its own part."""
    return (program.threads,) * len(program.blocks)


AMDGPU: Final = InstructionSet(classify_amdgpu, amdgpu_access, _tensor_ops, _threads)


_COUNTER: Final = re.compile(r"\b(?:vmcnt|loadcnt|asynccnt)\((\d{1,3})\)").search
_SPLIT: Final = ("s_wait_loadcnt", "s_wait_asynccnt")


def wait_count(instruction: Instruction) -> int | None:
    """Return how many loads of vector memory a wait leaves open; None if it waits for others.

    gfx12 has an instruction a counter (`s_wait_loadcnt 0x0`), older ones name it in brackets.
    """
    if instruction.opcode.startswith(_SPLIT):
        value = literal_value(instruction.operands[0]) if instruction.operands else None
        shift = 8 if instruction.opcode.endswith("_dscnt") else 0  # two counters in one
        return None if value is None else value >> shift & 0x3F
    match = _COUNTER(instruction.text)
    return None if match is None else int(match[1])
