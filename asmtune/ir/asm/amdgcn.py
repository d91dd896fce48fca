"""Read AMDGCN text, Triton's `asm["amdgcn"]`, into a `Listing`, and a kernel's resources.

Resources come from the text's `.amdgpu_metadata`, which is what the code object's note has as
MessagePack: no library for that format is needed. Its `.vgpr_count` is VGPRs and AGPRs together
where both are of one file (gfx90a and newer).

After LLVM, "User Guide for AMDGPU Backend": Assembler, Code Object Metadata.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from asmtune.base.errors import ParseError
from asmtune.ir.asm.amdgpu import JUMPS, is_jump
from asmtune.ir.asm.flow import Calls, Jump, expanded_entry, find_blocks, find_loops
from asmtune.ir.asm.program import AsmFunction, Instruction, Listing, LoopRole
from asmtune.ir.asm.ptx import quoted

_INSTRUCTION: Final = re.compile(r"\s+([a-z]\w+)(?:\s+([^;]*?))?\s*(;.*)?").fullmatch
_NAME: Final = r"([\w$.]+|\"[^\"]+\")"
"""A symbol; in quotes where a parameter's value is part of a function's name."""
_LABEL: Final = re.compile(rf"{_NAME}:\s*(?:;.*)?").fullmatch
_LOCATION: Final = re.compile(r"\s*\.loc\s+(\d{1,9})\s+(\d{1,9})\b").match
_FILE: Final = re.compile(r'\s*\.file\s+(\d{1,9})\s+"([^"]*)"(?:\s+"([^"]*)")?').match
_FUNCTION: Final = re.compile(rf"\s*\.type\s+{_NAME}\s*,\s*@function").match
_KERNEL: Final = re.compile(rf"\s*\.amdhsa_kernel\s+{_NAME}").match
_TARGET: Final = re.compile(r'\s*\.amdgcn_target\s+"([^"]*)"').match
_THREADS: Final = re.compile(r"\s+\.max_flat_workgroup_size:\s+(\d{1,9})").match
_SPILL: Final = re.compile(r"Folded (?:Spill|Reload)").search
_LDS: Final = re.compile(r"\blds\b").search


def _bare(name: str) -> str:
    """Take the quotes off a symbol."""
    return name.strip('"')


def parse_amdgcn(text: str) -> Listing:
    """Read one AMDGCN module.

    Raises:
        ParseError: the text is not AMDGCN or ends too early; the message names the line.
    """
    return _Reader(text).read()


def amdgcn_kernel(listing: Listing) -> AsmFunction:
    """Return the kernel of a module, with the bodies of the functions that it calls.

    Raises:
        ParseError: the module has no kernel, or one with too much code in loops.
    """
    return expanded_entry(listing, _CALLS)


_SYMBOL: Final = re.compile(rf"{_NAME}@\w+@lo\b").search
_PAIR: Final = re.compile(r"s\[(\d{1,3}):\d{1,3}\]$").match


def _call_targets(program: AsmFunction) -> dict[int, str]:
    """Return the functions whose addresses calls take from pairs of scalar registers.

    The low half of an address is made by `s_add_u32 s4, s4, helper@rel32@lo+4`.
    """
    targets: dict[int, str] = {}
    held: dict[str, str] = {}
    for item in program.instructions:
        if item.opcode == "s_swappc_b64":
            pair = _PAIR(item.operands[-1])
            if pair is not None and f"s{pair[1]}" in held:
                targets[item.index] = held[f"s{pair[1]}"]
        elif item.opcode == "s_add_u32" and (symbol := _SYMBOL(item.text)):
            held[item.operands[0]] = _bare(symbol[1])
    return targets


class _Function:
    """A function while its body is read."""

    def __init__(self, name: str, line: int) -> None:
        self.name, self.line = name, line
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}

    def close(self, *, is_entry: bool, directives: dict[str, str]) -> AsmFunction:
        """Resolve labels, find blocks and loops; raise ParseError where a label is missing."""
        jumps: dict[int, Jump] = {}
        names: dict[int, str] = {}
        for item in self.instructions:
            if not is_jump(item.opcode):
                continue
            targets = self._targets(item)
            falls = item.opcode not in JUMPS
            jumps[item.index] = Jump(targets, falls=falls)
            names.update(dict.fromkeys(targets, item.operands[-1]) if targets else {})
        blocks = find_blocks(len(self.instructions), jumps, names)
        loops = find_loops(blocks, _role)
        body = tuple(self.instructions)
        return AsmFunction(self.name, is_entry, body, blocks, loops, directives)

    def _targets(self, item: Instruction) -> tuple[int, ...]:
        if not item.opcode.startswith(("s_branch", "s_cbranch")):
            return ()
        name = item.operands[-1] if item.operands else ""
        if name not in self.labels:
            where = f"line {item.line}: {item.opcode}"
            raise ParseError(f"{where} to a label that is not in its function: {quoted(name)}")
        return (self.labels[name],)


def _role(header: object, body: object) -> LoopRole:  # noqa: ARG001
    """Return "work" for every loop: Triton's AMD backend writes none that only waits."""
    return "work"


_CALLS: Final = Calls(
    targets=_call_targets,
    returns=lambda item: item.opcode == "s_setpc_b64",
    role=_role,
    renames=False,
)


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._declared: set[str] = set()
        self._functions: list[_Function] = []
        self._kernels: set[str] = set()
        self._files: dict[int, str] = {}
        self._target = self._threads = ""
        self._function: _Function | None = None
        self._source: tuple[int, int] | None = None

    def read(self) -> Listing:
        for number, line in enumerate(self._lines, 1):
            if self._function is not None and (match := _INSTRUCTION(line)):
                self._add(self._function, number, match)
            elif match := _LOCATION(line):
                self._source = int(match[1]), int(match[2])
            elif match := _LABEL(line):
                self._define(number, _bare(match[1]))
            else:
                self._obey(line)
        if not self._target:
            raise ParseError(f"not AMDGCN: no .amdgcn_target in {len(self._lines)} lines")
        if self._function is not None:
            name, start = self._function.name, self._function.line
            raise ParseError(f"the text ends inside function {name}, opened at line {start}")
        if not self._functions:
            raise ParseError(f"no function with a body in {len(self._lines)} lines of AMDGCN")
        directives = {"target": self._target}
        if self._threads:
            directives["maxntid"] = self._threads
        programs = tuple(
            each.close(is_entry=each.name in self._kernels, directives=directives)
            for each in self._functions
        )
        return Listing(programs, directives, self._files)

    def _add(self, function: _Function, number: int, match: re.Match[str]) -> None:
        opcode, operands, comment = match.groups()
        operands = operands or ""
        if opcode.startswith("buffer_"):
            # Without architected scratch (gfx90a) spills are buffer instructions.
            if comment and _SPILL(comment):
                opcode = "scratch_" + opcode.removeprefix("buffer_")
            elif _LDS(operands):
                opcode += "_lds"
        items = function.instructions
        items.append(Instruction(len(items), number, opcode, None, operands, self._source))

    def _define(self, number: int, name: str) -> None:
        if name in self._declared:
            if self._function is not None:
                raise ParseError(f"line {number}: function {name} begins inside another")
            self._function, self._source = _Function(name, number), None
        elif self._function is not None and name.startswith(".Lfunc_end"):
            self._functions.append(self._function)
            self._function = None
        elif self._function is not None:
            self._function.labels[name] = len(self._function.instructions)

    def _obey(self, line: str) -> None:
        if match := _FUNCTION(line):
            self._declared.add(_bare(match[1]))
        elif match := _KERNEL(line):
            self._kernels.add(_bare(match[1]))
        elif match := _THREADS(line):
            self._threads = match[1]
        elif match := _TARGET(line):
            self._target = match[1].rpartition("-")[2]
        elif match := _FILE(line):
            self._files[int(match[1])] = f"{match[2]}/{match[3]}" if match[3] else match[2]


@dataclass(frozen=True, slots=True)
class AmdgpuResources:
    """A kernel's registers, memory and code size, as its metadata states them.

    Attributes:
        regs_per_thread: VGPRs and AGPRs of a lane, as they are allocated from one file.
        agprs: AGPRs among them.
        sgprs: SGPRs of a wavefront.
        scratch_bytes: memory of a lane for spills and arrays of its own.
        code_bytes: of machine code.
    """

    regs_per_thread: int
    agprs: int
    sgprs: int
    scratch_bytes: int
    code_bytes: int

    @property
    def spill_words(self) -> int:
        """Return the 4-byte words of a lane's scratch, arrays of its own included."""
        return self.scratch_bytes // 4

    @property
    def stack_bytes(self) -> int:
        """Return the scratch of a lane, under the name that a cubin's has."""
        return self.scratch_bytes


_METADATA: Final = re.compile(r"\.amdgpu_metadata\n(.*?)\.end_amdgpu_metadata", re.DOTALL).search
_FIELD: Final = re.compile(r"^\s+(?:- )?(\.\w+):\s+(\S+)\s*$", re.MULTILINE).findall
_CODE_BYTES: Final = re.compile(r"; codeLenInByte = (\d{1,12})").search


def read_resources(text: str, kernel: str) -> AmdgpuResources:
    """Read the resources of a kernel from its AMDGCN text.

    Raises:
        ParseError: the metadata is missing, lacks a figure, or has no such kernel.
    """
    block = _METADATA(text)
    entries = re.split(r"^  - ", block[1], flags=re.MULTILINE)[1:] if block else []
    for entry in entries:
        values = dict(_FIELD("    " + entry))
        if values.get(".name") == kernel:
            break
    else:
        raise ParseError(f"no kernel {kernel!r} in the metadata of {len(text):,} characters")
    code = _CODE_BYTES(text)
    if code is None:
        raise ParseError(f"the metadata of kernel {kernel!r} has no size of code")

    def figure(name: str, default: str | None = None) -> int:
        value = values.get(name, default)
        if value is None or not re.fullmatch(r"\d{1,12}", value):
            raise ParseError(f"the metadata of kernel {kernel!r} has no {name}, or no number there")
        return int(value)

    return AmdgpuResources(
        regs_per_thread=figure(".vgpr_count"),
        agprs=figure(".agpr_count", "0"),
        sgprs=figure(".sgpr_count"),
        scratch_bytes=figure(".private_segment_fixed_size"),
        code_bytes=int(code[1]),
    )
