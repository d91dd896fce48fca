"""Latency chain of a stretch of code: the cycles one warp takes, alone on an SM.

The instructions are walked in the text's order. Each starts when its operands are ready. Only
waits, barriers and memory order delay later instructions, since ptxas schedules freely within a
block. Asynchronous copies and products end later, and only a wait for their group is delayed by
them, so that the depth of a pipeline has its effect. A loop is walked several times, and its late
trips are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum, auto
from functools import lru_cache
from typing import Final, NamedTuple

from asmtune.core.hardware.model import L2_BYTES_PER_CYCLE, Target, tensor_rate
from asmtune.ir.asm.counts import block_threads
from asmtune.ir.asm.memory import access
from asmtune.ir.asm.nvptx import OpClass, classify, registers
from asmtune.ir.asm.program import AsmFunction, Instruction
from asmtune.ir.asm.tensor import tensor_ops

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
    """Effect of an instruction on later ones; a number, since numbers hash fast."""

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
    """An instruction; a tuple, which is created in half the time of a frozen dataclass.

    Attributes:
        action: its effect on later instructions.
        reads, writes: registers.
        latency: cycles until the result is there.
        busy: cycles of the tensor cores, or of the path to memory, that it takes for all warps of
            its program.
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
    """Return the steps of PTX instructions.

    `busy` has cycles of the tensor cores or of the way to memory, by an instruction's index.
    """
    steps = []
    for item in items:
        meaning = _meaning(item.opcode)
        if meaning is None:
            continue
        action, latency = meaning
        read, written = registers(item)
        still = int(item.text) if action in _GROUP_WAITS and item.text.isdigit() else 0
        steps.append(
            InstructionStep(action, read, written, latency, busy.get(item.index, 0.0), still)
        )
    return tuple(steps)


@lru_cache(maxsize=1024)
def _meaning(opcode: str) -> tuple[Action, float] | None:
    """Return an opcode's action and latency; None if nothing waits for it."""
    kind = classify(opcode)
    if kind in (OpClass.BRANCH, OpClass.FENCE, OpClass.CONSTANT):
        return None
    action = _action(opcode, kind)
    return action, COPY_LATENCY if action in COPIES else LATENCY.get(kind, 0.0)


def _action(opcode: str, kind: OpClass) -> Action:
    if kind is OpClass.ASYNC_WAIT:
        return _grouping(opcode)
    if kind is OpClass.GLOBAL:
        return Action.GLOBAL_STORE if opcode.startswith("st") else Action.GLOBAL_LOAD
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


_SINGLE: Final = {
    OpClass.SHARED: Action.SHARED,
    OpClass.ATOMIC: Action.ATOMIC,
    OpClass.BARRIER: Action.BARRIER,
    OpClass.ASYNC_COPY: Action.COPY,
}
COPIES: Final = frozenset({Action.COPY, Action.BULK})
_GROUP_WAITS: Final = frozenset({Action.COPY_WAIT, Action.PRODUCT_WAIT})
LINKED: Final = frozenset({Action.GLOBAL_LOAD, Action.GLOBAL_STORE, Action.ATOMIC, *COPIES})
ACCESSES: Final = frozenset({Action.SHARED, *LINKED})


_FILLING: Final = 5
_PIPELINED: Final = 12
"""Trips of a pipelined loop that are walked uncounted, then counted. Several are counted, since
each waits for an earlier trip, so that they come in bursts."""

_LINKED_CLASSES: Final = frozenset({OpClass.GLOBAL, OpClass.ASYNC_COPY, OpClass.ATOMIC})
_COMPUTE: Final = Action.COMPUTE
_NEVER: Final = float("-inf")


class _Walk:
    """State of one warp, and of the copies and products that run beside it."""

    def __init__(self, warps: int, stages: int) -> None:
        self.barrier = BARRIER_LATENCY if warps > 1 else 0.0
        self.stages = max(1, stages)
        self.ready: dict[str, float] = {}
        self.floor = self.memory = self.last = self.issued = 0.0
        self.tensor_free = self.link_free = _NEVER
        self.copies: list[float] = []
        self.copying = self.multiplying = _NEVER
        self.products: list[float] = []
        self.bulks: list[float] = []
        self.bulk = _NEVER

    def trip(self, steps: Sequence[InstructionStep]) -> float:
        """Walk the steps once; return when the last instruction starts."""
        self.bulk = _NEVER
        ready, last = self.ready, self.last
        for step in steps:
            action, reads, writes, latency, _, _ = step
            start = self.floor
            for name in reads:
                at = ready.get(name, _NEVER)
                if at > start:
                    start = at
            if action is _COMPUTE:
                done = start + latency
            else:
                start, done = self._take(step, start)
            if start > last:
                last = start
            for name in writes:
                ready[name] = done
        self.bulks.append(self.bulk)
        # The next trip is issued after this one.
        self.floor = self.last = last
        return last

    def _take(self, step: InstructionStep, start: float) -> tuple[float, float]:
        """Return when a step other than arithmetic starts, and when its result is ready."""
        action = step.action
        if action in ACCESSES:
            return self._access(step, start)
        if action is Action.BARRIER:
            start = max(start, self.issued, self.memory)
            self.memory = start + self.barrier
        elif action is Action.MMA:
            start = max(start, self.tensor_free)
            self.tensor_free = start + step.busy
            return start, self.tensor_free + step.latency
        elif action is Action.PRODUCT:
            self.tensor_free = max(start, self.tensor_free) + step.busy
            self.multiplying = self.tensor_free + PRODUCT_LATENCY
        elif action is Action.PRODUCT_COMMIT:
            self.products.append(self.multiplying)
            self.multiplying = _NEVER
        elif action is Action.COPY_COMMIT:
            self.copies.append(self.copying)
            self.copying = _NEVER
        else:
            start = max(start, self._awaited(action, step.still))
            self.floor = start
        return start, start

    def _access(self, step: InstructionStep, start: float) -> tuple[float, float]:
        action = step.action
        start = max(start, self.memory)
        self.issued = max(self.issued, start)
        done = start + step.latency
        if action in LINKED:
            # In order: a load may read what was stored before, so that ptxas keeps both.
            self.link_free = max(start, self.link_free) + step.busy
            done = self.link_free + step.latency
        if action is Action.COPY:
            self.copying = max(self.copying, done)
        elif action is Action.BULK:
            self.bulk = max(self.bulk, done)
        return start, done

    def _awaited(self, action: Action, still: int) -> float:
        """Return when the groups that a wait is for are done."""
        if action is Action.BULK_WAIT:
            trips = [*self.bulks, self.bulk]
            place = len(trips) - self.stages
            return trips[place] if place >= 0 else _NEVER
        groups = self.copies if action is Action.COPY_WAIT else self.products
        done = groups[: max(0, len(groups) - still)]
        latest = max(done, default=_NEVER)
        del groups[: len(done)]
        return latest


def chain_cycles(steps: Sequence[InstructionStep], warps: int, stages: int, repeats: bool) -> float:
    """Return the cycles of one pass over a stretch by one warp, alone on its SM.

    Args:
        steps: the stretch.
        warps: of the program.
        stages: depth of the pipelines of bulk copies, whose waits do not state it.
        repeats: True for a loop's body; the cycles are then those of a late trip.
    """
    walk = _Walk(warps, stages)
    if not repeats:
        return walk.trip(steps)
    pipelined = any(step.action in COPIES for step in steps)
    first, counted = (_FILLING, _PIPELINED) if pipelined else (1, 2)
    ends = [walk.trip(steps) for _ in range(first + counted)]
    return (ends[-1] - ends[-1 - counted]) / counted


def program_chains(
    program: AsmFunction, target: Target, warps: int, stages: int
) -> dict[int | None, float]:
    """Return the cycles of one pass over each loop's own code, by position; None is outside loops.

    Warps and stages are those of the compile.
    """
    busy = _busy(program, target)
    return chains_by_loop(program, lambda items: steps_of(items, busy), warps, stages)


def chains_by_loop(
    program: AsmFunction,
    steps: Callable[[Iterable[Instruction]], Sequence[InstructionStep]],
    warps: int,
    stages: int,
) -> dict[int | None, float]:
    """Return what `program_chains` does, of a program whose instructions become `steps`."""
    blocks: dict[int | None, list[int]] = {}
    for block, loop in enumerate(program.innermost_loops):
        # Where code polls a barrier, the loop around it waits.
        while loop is not None and program.loops[loop].role == "wait":
            loop = program.loops[loop].parent
        blocks.setdefault(loop, []).append(block)
    return {
        loop: chain_cycles(
            steps(item for block in own for item in program.body(block)),
            warps,
            stages,
            repeats=loop is not None,
        )
        for loop, own in blocks.items()
    }


def _busy(program: AsmFunction, target: Target) -> dict[int, float]:
    """Return cycles of the tensor cores, or of the path to L2, that all warps of a program take."""
    threads = block_threads(program)
    match: dict[int, float] = {}
    for item in program.instructions:
        if classify(item.opcode) in _LINKED_CLASSES:
            moved = access(item)
            running = threads[program.block_of(item.index)] or target.warp_size
            match[item.index] = (moved.bytes or 0) * running / L2_BYTES_PER_CYCLE if moved else 0.0
    for index, op in tensor_ops(program).items():
        running = threads[program.block_of(index)] or target.warp_size
        cycles = (op.flops_per_cta(running) or 0) / tensor_rate(target, op.kind, op.a_type or "f16")
        # A warp's mma.sync runs on one of the SM's four tensor cores.
        idle = 4 * target.warp_size / running if op.kind in ("mma.sync", "wmma") else 1.0
        match[index] = cycles * max(1.0, idle)
    return match
