"""Read an AMD device's artifact into a profile: AMDGCN to segments and chains of latencies.

Constants are estimates: nothing here was measured on a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final

from asmtune.base.errors import ParseError
from asmtune.core.hardware.model import L2_BYTES_PER_CYCLE, Target, tensor_rate
from asmtune.core.records.artifacts import Artifact
from asmtune.ir.asm.amdgcn import amdgcn_kernel, parse_amdgcn, read_resources
from asmtune.ir.asm.amdgpu import (
    AMDGPU,
    amdgpu_access,
    amdgpu_registers,
    classify_amdgpu,
    wait_count,
)
from asmtune.ir.asm.counts import MNEMONICS
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.asm.program import AsmFunction, Instruction
from asmtune.predict.features.catalog import ConfigReading
from asmtune.predict.features.chain import Action, InstructionStep, chains_by_loop
from asmtune.predict.features.profile import Profile, Segment, segments
from asmtune.predict.features.reader import ProfileReader

LATENCY: Final[Mapping[OpClass, float]] = {
    OpClass.FLOAT: 4.0,
    OpClass.INTEGER: 4.0,
    OpClass.LOGIC: 4.0,
    OpClass.MOVE: 4.0,
    OpClass.CONVERT: 4.0,
    OpClass.OTHER: 4.0,
    OpClass.SPECIAL: 16.0,
    OpClass.SHUFFLE: 16.0,
    OpClass.SHARED: 64.0,
    OpClass.GLOBAL: 800.0,
    OpClass.ASYNC_COPY: 800.0,
    OpClass.LOCAL: 120.0,
    OpClass.CONSTANT: 120.0,
    OpClass.ATOMIC: 1000.0,
    OpClass.TENSOR: 16.0,
    OpClass.UNKNOWN: 8.0,
}
"""Cycles until a result may be used; of a matrix product beyond the time that its unit is busy.

A SIMD of 16 lanes takes 4 cycles for the 64 lanes of a wavefront, and a quarter-rate function 16
(AMD's instruction set guides); the rest are estimates.
"""


def reader_for(target: Target) -> ProfileReader:
    """Return the reader of a target's artifacts."""
    return AmdProfileReader(target) if target.backend == "hip" else ProfileReader(target)


@dataclass(frozen=True)
class AmdProfileReader(ProfileReader):
    """Reads artifacts for one AMD target; can be sent to a worker process."""

    def __call__(self, artifact: Artifact) -> Profile:
        """Read an artifact into a profile, which holds for every launch of it.

        Conflicts of banks are left out: they are counted for NVIDIA's shared memory.

        Raises:
            ParseError: the AMDGCN is damaged.
        """
        return replace(super().__call__(artifact), bank_ways={})

    def _segments(self, program: AsmFunction, warps: int, stages: int) -> tuple[Segment, ...]:
        steps = partial(_steps, busy=_busy(program, self.target, warps))
        chains = chains_by_loop(program, steps, warps, stages)
        threads = [warps * self.target.warp_size] * len(program.blocks)
        return segments(program, chains, AMDGPU, threads)

    def reading(self, artifact: Artifact) -> ConfigReading:
        """Parse the assembly that features are taken from."""
        text = artifact.outputs.get("amdgcn")
        if text is None:
            raise ParseError(f"code for {artifact.arch}, and {self.target.name} has none of it")
        program = amdgcn_kernel(parse_amdgcn(text))
        resources = read_resources(text, program.name)
        none = dict.fromkeys(MNEMONICS, 0)
        reading = self._counted(artifact, program, resources, none, AMDGPU)
        barriers = reading.counts.total(OpClass.BARRIER)
        return replace(reading, text=none | {"bar.sync": barriers})


_ACTIONS: Final = {
    OpClass.SHARED: Action.SHARED,
    OpClass.ATOMIC: Action.ATOMIC,
    OpClass.BARRIER: Action.BARRIER,
    OpClass.TENSOR: Action.MMA,
}


@lru_cache(maxsize=1024)
def _meaning(opcode: str) -> tuple[Action, float] | None:
    """Return an opcode's action and latency; None if nothing waits for it."""
    kind = classify_amdgpu(opcode)
    if kind in (OpClass.BRANCH, OpClass.FENCE):
        return None
    latency = LATENCY.get(kind, 0.0)
    if kind is OpClass.GLOBAL:
        return (Action.GLOBAL_STORE if "store" in opcode else Action.GLOBAL_LOAD), latency
    return _ACTIONS.get(kind, Action.COMPUTE), latency


def _steps(items: Iterable[Instruction], busy: Mapping[int, float]) -> tuple[InstructionStep, ...]:
    """Return the steps of AMDGCN instructions.

    A result's readers wait for it, so that `s_waitcnt` delays nothing by itself; only copies to
    the LDS, which have no result, are waited for by it, each as a group of its own.
    """
    steps = []
    for item in items:
        meaning = _meaning(item.opcode)
        if meaning is None:
            continue
        action, latency = meaning
        kind = classify_amdgpu(item.opcode)
        if kind is OpClass.ASYNC_WAIT:
            still = wait_count(item)
            if still is not None:
                steps.append(InstructionStep(Action.COPY_WAIT, (), (), 0.0, 0.0, still))
            continue
        read, written = amdgpu_registers(item)
        taken = busy.get(item.index, 0.0)
        if kind is OpClass.ASYNC_COPY:
            steps.append(InstructionStep(Action.COPY, read, (), latency, taken))
            steps.append(InstructionStep(Action.COPY_COMMIT, (), (), 0.0))
            continue
        steps.append(InstructionStep(action, read, written, latency, taken))
    return tuple(steps)


def _busy(program: AsmFunction, target: Target, warps: int) -> dict[int, float]:
    """Return cycles of the matrix units, or of the path to L2, that a program's wavefronts take."""
    threads = warps * target.warp_size
    busy: dict[int, float] = {}
    for item in program.instructions:
        if classify_amdgpu(item.opcode) in (OpClass.GLOBAL, OpClass.ASYNC_COPY, OpClass.ATOMIC):
            moved = amdgpu_access(item)
            if moved is not None and moved.space != "shared":
                busy[item.index] = (moved.bytes or 0) * threads / L2_BYTES_PER_CYCLE
    # Each SIMD has a matrix unit of its own.
    idle = max(1.0, target.warp_allocation_granularity / warps)
    for index, op in AMDGPU.tensor_ops(program).items():
        rate = tensor_rate(target, op.kind, op.a_type or "f16")
        busy[index] = (op.flops_per_cta(threads) or 0) / rate * idle
    return busy
