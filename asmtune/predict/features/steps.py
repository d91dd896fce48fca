"""Steps: what each PTX instruction does to those after it, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, auto
from functools import lru_cache
from typing import Final, NamedTuple

from asmtune.ir.asm.nvptx import OpClass, classify
from asmtune.ir.asm.program import Instruction
from asmtune.ir.asm.registers import registers

LATENCY: Final[Mapping[OpClass, float]] = {
    OpClass.FLOAT: 4.5,
    OpClass.INTEGER: 4.5,
    OpClass.LOGIC: 4.5,
    OpClass.CONVERT: 8.0,
    OpClass.SPECIAL: 22.0,
    OpClass.SHUFFLE: 24.0,
    OpClass.SHARED: 32.0,
    OpClass.GLOBAL: 700.0,
    OpClass.LOCAL: 40.0,
    OpClass.ATOMIC: 900.0,
    OpClass.TENSOR: 34.0,
    OpClass.TENSOR_MEMORY: 40.0,
    OpClass.OTHER: 10.0,
    OpClass.UNKNOWN: 10.0,
}
"""Cycles until a result may be used.

Arithmetic, shared memory and mma.sync are near what Luo et al. (2024, arXiv 2402.13499,
sm_80 to sm_90) and Abdelkhalik et al. (2022, arXiv 2208.11174, sm_80) measured. The rest
are estimates, those of global memory and atomics under load.
"""

COPY_LATENCY: Final = 1000.0
"""Cycles from an asynchronous copy's issue until its tile is there: the slowest of many."""

BARRIER_LATENCY: Final = 30.0
"""Cycles of bar.sync among the warps of a program; one warp alone has none to wait for."""

PRODUCT_LATENCY: Final = 60.0
"""Cycles of wgmma and tcgen05 beyond the time that the tensor cores are busy."""


class Action(IntEnum):
    """What an instruction does to those after it; a number, since those hash fast."""

    COMPUTE = auto()
    GLOBAL_LOAD = auto()
    GLOBAL_STORE = auto()
    SHARED = auto()
    ATOMIC = auto()
    BARRIER = auto()
    COPY = auto()
    COPY_COMMIT = auto()
    COPY_WAIT = auto()
    BULK = auto()
    BULK_WAIT = auto()
    MMA = auto()
    PRODUCT = auto()
    PRODUCT_COMMIT = auto()
    PRODUCT_WAIT = auto()


class InstructionStep(NamedTuple):
    """One instruction; a tuple, which is made in half of a frozen dataclass's time.

    Attributes:
        action: what it does to those after it.
        reads, writes: registers.
        latency: cycles until the result is there.
        busy: cycles of the tensor cores, or of the way to memory, that it takes for all
            warps of its program.
        still: groups that may stay open after a wait.
    """

    action: Action
    reads: Sequence[str]
    writes: Sequence[str]
    latency: float
    busy: float = 0.0
    still: int = 0


def steps_of(
    items: Iterable[Instruction], busy: Mapping[int, float]
) -> tuple[InstructionStep, ...]:
    """The steps of a stretch of code.

    Args:
        items: its instructions.
        busy: cycles of the tensor cores or of the way to memory, by an instruction's index.
    """
    made = []
    for item in items:
        meaning = _meaning(item.opcode)
        if meaning is None:
            continue
        action, latency = meaning
        read, written = registers(item)
        still = int(item.text) if action in _GROUP_WAITS and item.text.isdigit() else 0
        made.append(
            InstructionStep(action, read, written, latency, busy.get(item.index, 0.0), still)
        )
    return tuple(made)


@lru_cache(maxsize=1024)
def _meaning(opcode: str) -> tuple[Action, float] | None:
    """What an opcode does and its latency; None if nothing waits for it."""
    kind = classify(opcode)
    if kind in (OpClass.BRANCH, OpClass.FENCE, OpClass.CONSTANT):
        return None
    action = _action(opcode, kind)
    return action, COPY_LATENCY if action in COPIES else LATENCY.get(kind, 0.0)


def _action(opcode: str, kind: OpClass) -> Action:
    if kind is OpClass.ASYNC_WAIT:
        return _grouping(opcode)
    if kind in (OpClass.GLOBAL, OpClass.SHARED):
        return _PLAIN[kind, opcode.startswith("st")]
    if kind is OpClass.BULK_COPY:
        loads = 0 <= opcode.find(".shared") < opcode.find(".global")
        return Action.BULK if loads else Action.COMPUTE
    if kind is OpClass.MBARRIER:
        polls = opcode.startswith(("mbarrier.try_wait", "mbarrier.test_wait"))
        return Action.BULK_WAIT if polls else Action.COMPUTE
    if kind is OpClass.TENSOR:
        return Action.PRODUCT if opcode.startswith(("wgmma", "tcgen05")) else Action.MMA
    return _SINGLE.get(kind, Action.COMPUTE)


def _grouping(opcode: str) -> Action:
    product = opcode.startswith(("wgmma", "tcgen05"))
    if "commit" in opcode:
        return Action.PRODUCT_COMMIT if product else Action.COPY_COMMIT
    if "wait" in opcode:
        return Action.PRODUCT_WAIT if product else Action.COPY_WAIT
    return Action.COMPUTE


_PLAIN: Final = {
    (OpClass.GLOBAL, False): Action.GLOBAL_LOAD,
    (OpClass.GLOBAL, True): Action.GLOBAL_STORE,
    (OpClass.SHARED, False): Action.SHARED,
    (OpClass.SHARED, True): Action.SHARED,
}
_SINGLE: Final = {
    OpClass.ATOMIC: Action.ATOMIC,
    OpClass.BARRIER: Action.BARRIER,
    OpClass.ASYNC_COPY: Action.COPY,
}
COPIES: Final = frozenset({Action.COPY, Action.BULK})
_GROUP_WAITS: Final = frozenset({Action.COPY_WAIT, Action.PRODUCT_WAIT})
LINKED: Final = frozenset({Action.GLOBAL_LOAD, Action.GLOBAL_STORE, Action.ATOMIC, *COPIES})
ACCESSES: Final = frozenset({Action.SHARED, *LINKED})
