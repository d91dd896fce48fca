"""Groups of instruction classes: the few that a reader of code tells apart by colour."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from asmtune.ir.asm.nvptx import OpClass


class Group(StrEnum):
    """What an instruction stands out for."""

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


_GROUPS: Final = {
    OpClass.TENSOR: Group.TENSOR,
    OpClass.TENSOR_MEMORY: Group.TENSOR,
    OpClass.ASYNC_COPY: Group.COPY,
    OpClass.BULK_COPY: Group.COPY,
    OpClass.SHARED: Group.SHARED,
    OpClass.GLOBAL: Group.GLOBAL,
    OpClass.ATOMIC: Group.GLOBAL,
    OpClass.BARRIER: Group.BARRIER,
    OpClass.MBARRIER: Group.BARRIER,
    OpClass.ASYNC_WAIT: Group.BARRIER,
    OpClass.FENCE: Group.BARRIER,
    OpClass.BRANCH: Group.BRANCH,
    OpClass.LOCAL: Group.SPILL,
}


def group_of(kind: OpClass) -> Group:
    """The group of a class."""
    return _GROUPS.get(kind, Group.OTHER)
