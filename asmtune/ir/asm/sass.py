"""Read SASS, as `nvdisasm -g -c` prints it, into a `Listing`.

An instruction is `/*01c0*/  @!P0 BRA `(.L_x_4) ;` on one line: its address, its guard, its
opcode and its operands. `//## File "...", line 28` says where the lines after it come from, and
stands only where the kernel was compiled with debug information. Functions that are called lie
in the kernel's section, behind it, each under a label with its name.

NVIDIA lists opcodes by name alone ("CUDA Binary Utilities", section "Instruction Set Reference");
their classes here are read off code that ptxas makes of known PTX. An unknown opcode is
`OpClass.UNKNOWN`, as in PTX.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from asmtune.base.errors import ParseError
from asmtune.ir.asm.flow import Jump, find_blocks, find_loops
from asmtune.ir.asm.nvptx import OpClass, classify, only_polls
from asmtune.ir.asm.program import AsmFunction, Instruction, Listing, LoopRole
from asmtune.ir.asm.ptx import MOST_FUNCTIONS, quoted

# Names up to a dot; a name with modifiers precedes its root.
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
"""Roots of opcodes that end a basic block; a call does not, since it comes back."""

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
    if only_polls([item.opcode for item in body], _POLLS, classify_sass, _BESIDE_POLLS):
        return "wait"
    for place, item in enumerate(body):
        if item.opcode.startswith("BAR.SYNC") and item.text == "0x1":
            following = body[place + 1 : place + 1 + _SOON]
            if any(other.opcode.startswith("LDS.U8") for other in following):
                return "dispatch"
    return "work"


_SOON: Final = 6
"""Instructions between the barrier and the part's number: ptxas makes its address meanwhile."""


# Newer architectures have how an instruction is scheduled behind it: `&req={1} ?trans2;`.
_INSTRUCTION: Final = re.compile(
    r"\s*/\*([0-9a-f]{4,16})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)"
    r"(\s[^;&?]*)?(?:[&?][^;]*)?;"
).match
_ADDRESS: Final = re.compile(r"\s*/\*[0-9a-f]{4,16}\*/").match
_SOURCE: Final = re.compile(r'\s*//## File "([^"]*)", line (\d{1,9})').match
_LABEL: Final = re.compile(r"([\w$.@]+):\s*").fullmatch
_SECTION: Final = re.compile(r"\s*\.section\s+([^\s,]+)").match
_ENTRY: Final = re.compile(r'\s*\.other\s+([\w$.@]+),@"[^"]*STO_CUDA_ENTRY').match
_TARGET: Final = re.compile(r"\s*\.target\s+(\w+)").match
_NAMED: Final = re.compile(r"`\(([\w$.@]+)\)").search
_TABLE: Final = re.compile(r'BRANCH_TARGETS ([^"*]*)').search
_CODE: Final = ".text."


def parse_sass(text: str) -> Listing:
    """Read SASS, which nvdisasm printed of one cubin.

    Sources are as in PTX: (file, line), of `Listing.files`. A branch out of its function leaves.

    Raises:
        ParseError: the text is not SASS, or has no instruction; the message names the line.
    """
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), 1):
        reader.read(number, line)
    return reader.listing()


class _Function:
    def __init__(self, name: str) -> None:
        self.name = name
        self.instructions: list[Instruction] = []
        self.addresses: list[int] = []
        self.labels: dict[str, int] = {}

    def close(self, is_entry: bool) -> AsmFunction:
        count = len(self.instructions)
        names: dict[int, str] = {}
        for name, index in self.labels.items():
            names.setdefault(index, name)
        jumps = {item.index: jump for item in self.instructions if (jump := self._jump(item))}
        blocks = find_blocks(count, jumps, names)

        def role_of(header: int, body: Sequence[int]) -> LoopRole:  # noqa: ARG001
            spans = (blocks[block] for block in body)
            return sass_loop_role([i for s in spans for i in self.instructions[s.start : s.end]])

        loops = find_loops(blocks, role_of)
        items, addresses = tuple(self.instructions), tuple(self.addresses)
        return AsmFunction(self.name, is_entry, items, blocks, loops, addresses=addresses)

    def _jump(self, item: Instruction) -> Jump | None:
        root = item.opcode.partition(".")[0]
        guarded = item.predicate is not None
        if root in ENDS:
            return Jump((), falls=guarded)
        if root not in BRANCHES:
            return None
        # `BRA.U !UP0, ...` has its guard as operand, and BRA.DIV what it asks the warp.
        guarded = guarded or len(item.operands) > 1
        table = _TABLE(item.text)
        if table is not None:
            names = [name.strip() for name in table[1].split(",")]
            guarded = item.predicate is not None
        else:
            named = _NAMED(item.text)
            names = [] if named is None else [named[1]]
        leaves = len(self.instructions)
        return Jump(tuple(self.labels.get(name, leaves) for name in names), falls=guarded)


class _Reader:
    def __init__(self) -> None:
        self._functions: list[_Function] = []
        self._entries: set[str] = set()
        self._files: dict[str, int] = {}
        self._directives: dict[str, str] = {}
        self._function: _Function | None = None
        self._source: tuple[int, int] | None = None
        self._in_code = False

    def read(self, number: int, line: str) -> None:
        if _ADDRESS(line):
            self._add(number, line)
        elif match := _SOURCE(line):
            index = self._files.setdefault(match[1], len(self._files) + 1)
            self._source = index, int(match[2])
        elif match := _LABEL(line):
            self._label(match[1])
        elif match := _SECTION(line):
            self._in_code = match[1].strip('"').startswith(_CODE)
            self._function = self._source = None
        elif match := _ENTRY(line):
            self._entries.add(match[1])
        elif match := _TARGET(line):
            self._directives["target"] = match[1]

    def _label(self, name: str) -> None:
        if not self._in_code or name.startswith(_CODE):
            return
        if name.startswith(".") and self._function is not None:
            self._function.labels[name] = len(self._function.instructions)
        elif not name.startswith("."):
            self._function = _Function(name)
            self._functions.append(self._function)
            if len(self._functions) > MOST_FUNCTIONS:
                raise ParseError(f"function {quoted(name)}: more than {MOST_FUNCTIONS:,} of them")
            self._source = None

    def _add(self, number: int, line: str) -> None:
        match = _INSTRUCTION(line)
        if match is None or self._function is None:
            why = "outside a function" if match else "not SASS"
            raise ParseError(f"line {number}: {why}: {quoted(line)}")
        address, predicate, opcode, operands = match.groups()
        items, text = self._function.instructions, (operands or "").strip()
        items.append(Instruction(len(items), number, opcode, predicate, text, self._source))
        self._function.addresses.append(int(address, 16))

    def listing(self) -> Listing:
        functions = [item for item in self._functions if item.instructions]
        if not functions:
            raise ParseError("not SASS: no instruction in the text")
        programs = tuple(function.close(function.name in self._entries) for function in functions)
        files = {index: name for name, index in self._files.items()}
        return Listing(programs, self._directives, files)


def relocated(sass: Listing, ptx: Listing) -> Listing:
    """Return the SASS with the instructions of inline assembly at the line where it begins.

    The LLVM of Triton 3.9 counts each further line of a piece of inline assembly one source line
    down: of `tl.load(..., other=0.0)` on line 10, four registers and the load become lines 10 to
    13. PTX says where a piece begins and ends; SASS has only lines, no columns.

    An instruction moves if the PTX has no instruction of its kind (class, and whether it stores)
    at its line, but has one in a piece of inline assembly of which a further line was put there.

    `ptx` is the listing that ptxas made the SASS of, with `misplaced` filled.
    """
    if not ptx.misplaced:
        return sass
    to_ptx = {mine: its for mine, a in sass.files.items() for its, b in ptx.files.items() if a == b}
    ptx_items = (item for program in ptx.programs for item in program.instructions)
    in_ptx = {(item.source, _what(item, classify)) for item in ptx_items}
    known = {place for place, _ in in_ptx}

    def moved(item: Instruction) -> Instruction:
        if item.source is None:
            return item
        place = (to_ptx.get(item.source[0], 0), item.source[1])
        what = _what(item, classify_sass)
        pieces = ptx.misplaced.get(place, ())
        if (place, what) in in_ptx or not pieces:
            return item
        fitting = [home for home in pieces if (home, what) in in_ptx]
        if not fitting and place in known:
            return item
        _, line = (fitting or pieces)[0]
        return replace(item, source=(item.source[0], line))

    programs = tuple(
        replace(program, instructions=tuple(map(moved, program.instructions)))
        for program in sass.programs
    )
    return replace(sass, programs=programs)


def _what(item: Instruction, class_of: Callable[[str], OpClass]) -> tuple[OpClass, bool]:
    return class_of(item.opcode), item.opcode.lower().startswith("st")
