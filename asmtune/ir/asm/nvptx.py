"""PTX opcodes, operands and kernel heads: classes, roles of loops, registers, parameters.

After NVIDIA, "Parallel Thread Execution ISA", chapter 9 (versions 8.7 to 9.4). An unknown opcode
is `OpClass.UNKNOWN`, not an error, since each toolkit brings new ones; counts show them by name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from asmtune.ir.asm.flow import Calls
from asmtune.ir.asm.program import AsmFunction, Instruction, LoopRole


class OpClass(StrEnum):
    """Kind of work that an instruction does."""

    TENSOR = "tensor"
    """Matrix multiply: mma, wmma.mma, wgmma.mma_async, tcgen05.mma."""
    TENSOR_MEMORY = "tensor_memory"
    """Moves to, from and in Blackwell's tensor memory, and its allocation."""
    ASYNC_COPY = "async_copy"
    """cp.async: each thread copies up to 16 bytes from global to shared memory."""
    BULK_COPY = "bulk_copy"
    """cp.async.bulk and its tensor (TMA) forms: one thread copies a tile."""
    ASYNC_WAIT = "async_wait"
    """Commits of asynchronous work to a group, and waits for one."""
    BARRIER = "barrier"
    """Barriers of a warp, a CTA or a cluster."""
    MBARRIER = "mbarrier"
    """Barriers that are objects in shared memory."""
    BRANCH = "branch"
    """All that moves the program counter: bra, brx, call, ret, exit, trap."""
    GLOBAL = "global"
    """Loads and stores of global memory, or of an address whose space is not named."""
    SHARED = "shared"
    """Loads and stores of shared memory, ldmatrix and stmatrix included."""
    LOCAL = "local"
    """Loads and stores of local memory; these are in the PTX, and ptxas adds spills later."""
    CONSTANT = "constant"
    """Loads of parameters and constants."""
    ATOMIC = "atomic"
    """Atomics and reductions, of whatever space."""
    FENCE = "fence"
    """Memory fences and proxy fences."""
    SPECIAL = "special"
    """Special functions (MUFU) and what is made of them: ex2, rcp, sqrt, float division."""
    FLOAT = "float"
    """Float arithmetic of any width."""
    INTEGER = "integer"
    """Integer arithmetic, shifts, bit fields, byte permutes."""
    LOGIC = "logic"
    """Bitwise logic, comparison, selection, predicates."""
    CONVERT = "convert"
    """Conversions between types, cvta included."""
    SHUFFLE = "shuffle"
    """Exchange between the lanes of a warp: shfl, vote, match, redux, elect."""
    MOVE = "move"
    """Register moves."""
    OTHER = "other"
    """Known, but none of the above: setmaxnreg, tensormap.*, nanosleep, prefetch."""
    UNKNOWN = "unknown"
    """Not known to this module."""


_BY_TYPE = "type"
_BY_SPACE = "space"

# Names up to a dot; the longest that begins an opcode decides.
_NAMES: dict[str, str] = {
    OpClass.TENSOR: "mma wmma.mma wgmma.mma_async tcgen05.mma",
    OpClass.TENSOR_MEMORY: "tcgen05.ld tcgen05.st tcgen05.cp tcgen05.shift tcgen05.alloc"
    " tcgen05.dealloc tcgen05.relinquish_alloc_permit",
    OpClass.ASYNC_COPY: "cp.async",
    OpClass.BULK_COPY: "cp.async.bulk cp.reduce.async.bulk cp.async.bulk.prefetch",
    OpClass.ASYNC_WAIT: "cp.async.commit_group cp.async.wait_group cp.async.wait_all"
    " cp.async.bulk.commit_group cp.async.bulk.wait_group wgmma.fence wgmma.commit_group"
    " wgmma.wait_group tcgen05.commit tcgen05.wait",
    OpClass.BARRIER: "bar barrier",
    OpClass.MBARRIER: "mbarrier cp.async.mbarrier",
    OpClass.BRANCH: "bra brx call ret exit trap brkpt",
    OpClass.SHARED: "ldmatrix stmatrix st.async st.bulk",
    OpClass.ATOMIC: "atom red multimem.red multimem.ld_reduce",
    OpClass.FENCE: "fence membar tcgen05.fence",
    OpClass.SPECIAL: "ex2 lg2 rcp sqrt rsqrt sin cos tanh",
    OpClass.INTEGER: "shl shr shf bfe bfi bfind brev clz popc fns prmt szext bmsk mad24 mul24"
    " dp2a dp4a vadd vsub vmad vset vmin vmax vabsdiff vshl vshr",
    OpClass.LOGIC: "and or xor not cnot lop3 set setp selp slct testp",
    OpClass.CONVERT: "cvt cvta cvt.pack",
    OpClass.SHUFFLE: "shfl vote match redux elect activemask",
    OpClass.MOVE: "mov movmatrix",
    OpClass.OTHER: "setmaxnreg tensormap nanosleep prefetch prefetchu discard applypriority"
    " createpolicy isspacep mapa getctarank griddepcontrol pmevent alloca stacksave"
    " stackrestore istypep suld sust sured suq tex tld4 txq clusterlaunchcontrol",
    _BY_TYPE: "abs add addc copysign div fma mad madc max min mul neg rem sad sub subc",
    _BY_SPACE: "ld ldu st wmma.load wmma.store multimem.st",
}
_CLASSES = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_LONGEST_NAME = max(name.count(".") for name in _CLASSES) + 1

_FLOAT_TYPE = re.compile(r"(?:b?f\d+(?:x\d+)?|tf32|(?:ue|e)\dm\d(?:x\d+)?)")
_SPACE_CLASSES = {
    "global": OpClass.GLOBAL,
    "shared": OpClass.SHARED,
    "local": OpClass.LOCAL,
    "param": OpClass.CONSTANT,
    "const": OpClass.CONSTANT,
}

JUMPS = frozenset({"bra", "bra.uni", "brx.idx", "brx.idx.uni", "ret", "ret.uni", "exit", "trap"})
"""Opcodes that end a basic block; a call does not, since it comes back."""


def memory_space(opcode: str) -> str | None:
    """Return the memory space that an opcode names first, or None."""
    for part in opcode.split("."):
        name = part.partition("::")[0]
        if name in _SPACE_CLASSES:
            return name
    return None


@lru_cache(maxsize=4096)
def classify(opcode: str) -> OpClass:
    """Return the class of a PTX opcode, such as `mma.sync.aligned.m16n8k16.row.col...`."""
    # What stands after "::" qualifies its part, as in tcgen05.wait::ld.
    parts = [part.partition("::")[0] for part in opcode.split(".")]
    for length in range(min(len(parts), _LONGEST_NAME), 0, -1):
        kind = _CLASSES.get(".".join(parts[:length]))
        if kind is not None:
            break
    else:
        return OpClass.UNKNOWN
    if kind == _BY_SPACE:
        return _SPACE_CLASSES[memory_space(opcode) or "global"]
    if kind == _BY_TYPE:
        if not any(_FLOAT_TYPE.fullmatch(part) for part in parts[1:]):
            return OpClass.INTEGER
        return OpClass.SPECIAL if parts[0] == "div" else OpClass.FLOAT
    return OpClass(kind)


_POLLS = ("mbarrier.try_wait", "mbarrier.test_wait")
_BESIDE_POLLS = frozenset({OpClass.BRANCH, OpClass.LOGIC, OpClass.MOVE})


def only_polls(
    opcodes: Sequence[str],
    polls: tuple[str, ...],
    class_of: Callable[[str], OpClass],
    beside: frozenset[OpClass],
) -> bool:
    """Return whether a loop polls, and does nothing else but work of the classes `beside`."""
    others = [opcode for opcode in opcodes if not opcode.startswith(polls)]
    return len(others) < len(opcodes) and all(class_of(opcode) in beside for opcode in others)


def loop_role(header: Sequence[Instruction], body: Sequence[Instruction]) -> LoopRole:
    """Return the role of a loop.

    `wait`: it does nothing but try an mbarrier. Triton writes one at each wait on a copy
    or an MMA of Hopper and Blackwell, inside the main loop.

    `dispatch`: where the extra warps of a warp-specialised kernel wait for their part.
    Triton's is known by its header, which meets the other warps at named barrier 1
    (reserved for that) and then reads the part to run as a byte of shared memory.
    """
    opcodes = [item.opcode for item in body if not item.opcode.startswith("nanosleep")]
    if only_polls(opcodes, _POLLS, classify, _BESIDE_POLLS):
        return "wait"
    meets = any(is_switch_barrier(item) for item in header)
    if meets and any(item.opcode.startswith("ld.shared.b8") for item in header):
        return "dispatch"
    return "work"


def _call_targets(program: AsmFunction) -> dict[int, str]:
    """Return the names that calls name, as in `call.uni (retval0), helper, (param0)`."""
    targets: dict[int, str] = {}
    for item in program.instructions:
        if item.opcode in ("call", "call.uni"):
            names = [part for part in item.operands if not part.startswith("(")]
            targets.update({item.index: names[0]} if names else {})
    return targets


CALLS: Final = Calls(
    targets=_call_targets,
    returns=lambda item: item.opcode in ("ret", "ret.uni"),
    role=loop_role,
    renames=True,
)
"""Calls and returns of PTX."""


def is_switch_barrier(instruction: Instruction) -> bool:
    """Return whether all warps meet here to start or end a warp-specialised part."""
    return instruction.opcode == "barrier.sync" and instruction.text == "1"


class Group(StrEnum):
    """The few kinds of instructions that a reader of code tells apart by colour."""

    TENSOR = "tensor"
    """Matrix products, and the tensor memory that they work on."""
    COPY = "copy"
    """Asynchronous copies between global and shared memory."""
    SHARED = "shared"
    """Loads and stores of shared memory."""
    GLOBAL = "global"
    """Loads, stores and atomics of global memory."""
    BARRIER = "barrier"
    """Barriers, fences, and waits for copies and products."""
    BRANCH = "branch"
    """All that moves the program counter."""
    SPILL = "spill"
    """Local memory: registers that did not fit, and arrays of a thread's own."""
    OTHER = "other"
    """Arithmetic, moves and the rest."""


_MEMBERS: Final = {
    Group.TENSOR: "tensor tensor_memory",
    Group.COPY: "async_copy bulk_copy",
    Group.SHARED: "shared",
    Group.GLOBAL: "global atomic",
    Group.BARRIER: "barrier mbarrier async_wait fence",
    Group.BRANCH: "branch",
    Group.SPILL: "local",
}
_GROUPS: Final = {
    OpClass(kind): group for group, kinds in _MEMBERS.items() for kind in kinds.split()
}


def group_of(kind: OpClass) -> Group:
    """Return the group of a class."""
    return _GROUPS.get(kind, Group.OTHER)


_REGISTERS = re.compile(r"%[a-z]+\d+").findall

_NO_RESULT = frozenset(
    {
        OpClass.ASYNC_COPY,
        OpClass.BULK_COPY,
        OpClass.ASYNC_WAIT,
        OpClass.BARRIER,
        OpClass.BRANCH,
        OpClass.FENCE,
    }
)
_STORES = ("st.", "red.", "stmatrix.", "wmma.store.", "multimem.st.", "multimem.red.", "tcgen05.st")
_ACCUMULATES = ("wgmma.mma_async", "tcgen05.mma")


def registers(instruction: Instruction) -> tuple[list[str], list[str]]:
    """Return the registers read, the guard among them, and those written.

    The destination stands first (NVIDIA, "Parallel Thread Execution ISA", section 6.4).

    Accumulators of wgmma are both. Special registers (`%tid.x`) and names that the text defines
    are left out.
    """
    opcode, text = instruction.opcode, instruction.text
    named = _REGISTERS(text)
    # If an address stands first, as in tcgen05.mma, the result lies in memory.
    if not named or text[0] == "[" or not _has_result(opcode):
        written, read = [], named
    else:
        # One register, a pair (`%p1|%p2`) or a vector; no register's name ends in "%".
        number = text.count("%", 0, text.find("}" if text[0] == "{" else ","))
        written, read = named[:number], named[number:]
        if opcode.startswith(_ACCUMULATES):
            read = named
    return (_REGISTERS(instruction.predicate) + read if instruction.predicate else read), written


@lru_cache(maxsize=1024)
def _has_result(opcode: str) -> bool:
    return classify(opcode) not in _NO_RESULT and not opcode.startswith(_STORES)


_COMMENT: Final = re.compile(r"/\*.*?(?:\*/|\Z)|//[^\n]*", re.DOTALL)
_ENTRY: Final = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\(([^){;]*)\))?([^{;]*)(?:[{;]|\Z)")
_TYPE: Final = re.compile(r"\.[bfsu](8|16|32|64|128)\b")
_LENGTH: Final = re.compile(r"\[\s*(\d{1,9})\s*\]")
_DIRECTIVE: Final = re.compile(r"\.(reqntid|maxntid|reqnctapercluster)\s+([\d,\s]+)")


@dataclass(frozen=True)
class KernelEntry:
    """The head of a kernel.

    Attributes:
        name: of the kernel.
        parameters: bytes of each parameter, in order.
        threads: threads a program, from `reqntid` or `maxntid`; None if neither is there.
        programs: programs a cluster, from `reqnctapercluster`; 1 if it is not there.
    """

    name: str
    parameters: tuple[int, ...]
    threads: int | None
    programs: int

    def misfit(self, own: KernelEntry) -> str | None:
        """Return why a launch of another kernel cannot launch this one; None if it can."""
        if self.parameters != own.parameters:
            return f"takes {_listed(self.parameters)}, and the kernel {_listed(own.parameters)}"
        if self.threads is not None and self.threads != own.threads:
            return f"is for {self.threads} threads a program, and launched with {own.threads}"
        if self.programs != own.programs:
            return f"is for clusters of {self.programs}, and launched in clusters of {own.programs}"
        return None


def entries(ptx: str) -> list[KernelEntry]:
    """Return the kernels of a PTX module in the text's order; [] if the text is not PTX."""
    kernels = []
    for match in _ENTRY.finditer(_COMMENT.sub(" ", ptx)):
        name, parameters, tail = match.groups()
        sizes = {
            key: math.prod(int(size) for size in value.split(",") if size.strip())
            for key, value in _DIRECTIVE.findall(tail)
        }
        threads = sizes.get("reqntid", sizes.get("maxntid"))
        listed = [each for each in (parameters or "").split(",") if each.strip()]
        bytes_each = tuple(map(_bytes_of, listed))
        programs = sizes.get("reqnctapercluster", 1)
        kernels.append(KernelEntry(name, bytes_each, threads, programs))
    return kernels


def _bytes_of(parameter: str) -> int:
    """Return the bytes of one parameter; 0 if its type is not a known one."""
    kind, length = _TYPE.search(parameter), _LENGTH.search(parameter)
    bits = int(kind[1]) if kind else 0
    return bits // 8 * (int(length[1]) if length else 1)


def _listed(parameters: tuple[int, ...]) -> str:
    sizes = ", ".join(map(str, parameters))
    return f"{len(parameters)} parameters of {sizes} bytes" if parameters else "no parameters"
