"""SASS opcodes: classes of work, and roles of loops.

SASS is the machine code of NVIDIA's GPUs. NVIDIA lists its opcodes by name alone ("CUDA Binary
Utilities", section "Instruction Set Reference"); their classes here are read off code that ptxas
makes of known PTX. An unknown opcode is `OpClass.UNKNOWN`, as in PTX.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.asm.program import Instruction, LoopRole

# Names up to a dot; a name with modifiers stands before its root.
_NAMES: Final[dict[OpClass, str]] = {
    OpClass.TENSOR: "HMMA IMMA DMMA BMMA QMMA OMMA HGMMA IGMMA BGMMA QGMMA"
    " UTCHMMA UTCIMMA UTCQMMA UTCOMMA",
    OpClass.TENSOR_MEMORY: "LDTM STTM UTCCP UTCSHIFT UTCATOMSWS UVIRTCOUNT",
    OpClass.ASYNC_COPY: "LDGSTS",
    OpClass.BULK_COPY: "UTMALDG UTMASTG UTMAREDG UTMAPF UBLKCP UBLKRED UBLKPF",
    OpClass.ASYNC_WAIT: "LDGDEPBAR DEPBAR WARPGROUP WARPGROUPSET UTCBAR UTMACMDFLUSH",
    OpClass.BARRIER: "BAR WARPSYNC UCGABAR_ARV UCGABAR_WAIT",
    OpClass.MBARRIER: "SYNCS ARRIVES",
    OpClass.BRANCH: "BRA BRX BRXU JMP JMX JMXU CALL RET EXIT KILL BPT BSSY BSYNC BREAK BMOV"
    " YIELD WARPSYNC.COLLECTIVE ENDCOLLECTIVE",
    OpClass.GLOBAL: "LDG STG LD ST",
    OpClass.SHARED: "LDS STS LDSM STSM STAS",
    OpClass.LOCAL: "LDL STL",
    OpClass.CONSTANT: "LDC LDCU ULDC",
    OpClass.ATOMIC: "ATOM ATOMG ATOMS RED REDG REDAS",
    OpClass.FENCE: "MEMBAR FENCE ERRBAR CGAERRBAR CCTL",
    OpClass.SPECIAL: "MUFU",
    OpClass.FLOAT: "FADD FADD2 FMUL FMUL2 FFMA FFMA2 FMNMX FMNMX3 FCHK FSWZADD"
    " HADD2 HMUL2 HFMA2 HMNMX2 DADD DMUL DFMA DMNMX",
    OpClass.INTEGER: "IMAD IADD IADD3 VIADD VIADDMNMX VIMNMX VIMNMX3 IMNMX IABS LEA SHF SHL SHR"
    " BMSK SGXT FLO POPC BREV PRMT IDP VABSDIFF VABSDIFF4",
    OpClass.LOGIC: "LOP LOP3 PLOP3 ISETP FSETP HSETP2 DSETP FSET HSET2 SEL FSEL R2P P2R UP2UR",
    OpClass.CONVERT: "F2F F2FP F2I F2IP I2F I2FP I2I I2IP FRND HADD2.F32",
    OpClass.SHUFFLE: "SHFL VOTE VOTEU MATCH REDUX CREDUX ELECT MOVM",
    OpClass.MOVE: "MOV CS2R S2R S2UR CS2UR R2UR B2R R2B IMAD.MOV",
    OpClass.OTHER: "NOP NANOSLEEP USETMAXREG PREEXIT ACQBULK CCTLL CCTLT UTMACCTL PMTRIG QSPC"
    " LEPC TEX TLD TLD4 TXQ SULD SUST SURED",
}
_CLASSES: Final = {name: kind for kind, names in _NAMES.items() for name in names.split()}


@lru_cache(maxsize=4096)
def classify_sass(opcode: str) -> OpClass:
    """Return the class of a SASS opcode, such as `HGMMA.64x64x16.F32`."""
    root, _, rest = opcode.partition(".")
    named = f"{root}.{rest.partition('.')[0]}"
    # What the uniform datapath does for a whole warp has a U before the name.
    for name in (named, root, named.removeprefix("U"), root.removeprefix("U")):
        if name in _CLASSES:
            return _CLASSES[name]
    return OpClass.UNKNOWN


ENDS: Final = frozenset({"EXIT", "RET", "KILL"})
BRANCHES: Final = frozenset({"BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU"})
"""Roots of opcodes that end a basic block; a call comes back, so that it is none."""

_POLLS: Final = ("SYNCS.PHASECHK", "UTCATOMSWS.FIND_AND_SET", "USETMAXREG.TRY_ALLOC")
_BESIDE_POLLS: Final = frozenset(
    {
        OpClass.BRANCH,
        OpClass.LOGIC,
        OpClass.MOVE,
        OpClass.INTEGER,
        OpClass.ASYNC_WAIT,
        OpClass.OTHER,
    }
)


def sass_loop_role(body: Sequence[Instruction]) -> LoopRole:
    """Return the role of a loop.

    `wait`: it only tries a barrier, or asks for registers or tensor memory until there are some.

    `dispatch`: where the extra warps of a warp-specialised kernel wait for their part: they meet
    the others at named barrier 1, then read the part as a byte of shared memory, as in the PTX.
    """
    polls = [item for item in body if item.opcode.startswith(_POLLS)]
    if polls and all(
        item.opcode.startswith(_POLLS) or classify_sass(item.opcode) in _BESIDE_POLLS
        for item in body
    ):
        return "wait"
    for place, item in enumerate(body):
        if item.opcode.startswith("BAR.SYNC") and item.text == "0x1":
            following = body[place + 1 : place + 1 + _SOON]
            if any(other.opcode.startswith("LDS.U8") for other in following):
                return "dispatch"
    return "work"


_SOON: Final = 6
"""Instructions between the barrier and the part's number: ptxas makes its address meanwhile."""
