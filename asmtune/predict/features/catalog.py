"""The features: names, units, meanings, and how each is read.

This is the one source for the command line's listing, the reports' columns, the documentation and
the learned scorer's schema. To add a feature, add a line here.

Counts are static, one for each instruction of the PTX, not weighted by how
often it runs. "Hot" means the hottest loop: the deepest, with tensor
instructions if there is one; the whole kernel where it has no loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal

from asmtune.base.fingerprint import digest
from asmtune.core.hardware.model import Target
from asmtune.core.occupancy import Occupancy
from asmtune.core.records.artifacts import Artifact
from asmtune.ir.asm.amdgcn import AmdgpuResources
from asmtune.ir.asm.counts import Counts
from asmtune.ir.asm.cubin import Resources
from asmtune.ir.asm.memory import Direction, Space
from asmtune.ir.asm.nvptx import OpClass
from asmtune.ir.asm.program import AsmFunction
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.cycles import Cycles, program_cycles
from asmtune.predict.features.execution import executions
from asmtune.predict.features.profile import Profile


@dataclass(frozen=True)
class LaunchReading:
    """Data of a compiled config in one launch, from which features are read."""

    profile: Profile
    work: Work
    target: Target
    cycles: Cycles

    @classmethod
    def of(cls, profile: Profile, work: Work, target: Target) -> LaunchReading:
        """Weigh a profile by a launch."""
        runs = executions(profile, work, target.warp_size)
        return cls(profile, work, target, program_cycles(profile, runs, work, target))

    @property
    def resident(self) -> float:
        """Return the programs that an SM holds at once; 1 where none fits."""
        return max(1.0, self.profile.static["programs_per_sm"])

    @property
    def waves(self) -> float:
        """Return the rounds in which the grid runs, with the last one's fraction."""
        return self.work.programs / (self.resident * self.target.sms)

    @property
    def unique_bytes(self) -> float:
        """Return the different bytes that the launch moves between DRAM and the SMs."""
        return self.work.unique_read_bytes + self.work.unique_written_bytes

    @property
    def tail(self) -> float:
        """Share of the program slots that the last wave leaves empty; 0 where it is full."""
        return math.ceil(self.waves) - self.waves


@dataclass(frozen=True)
class ConfigReading:
    """Data of one compiled config, parsed once for all features.

    Attributes:
        artifact: the compiler's outputs.
        target: the machine.
        resources: of the cubin, or of AMD's AMDGCN.
        occupancy: programs that fit on an SM.
        program: the kernel's instructions, blocks and loops.
        counts: over the whole kernel.
        hot: over its hottest loop; over the whole kernel where it has no loop.
        text: mnemonics over the whole PTX, device functions included.
    """

    artifact: Artifact
    target: Target
    resources: Resources | AmdgpuResources
    occupancy: Occupancy
    program: AsmFunction
    counts: Counts
    hot: Counts
    text: dict[str, int]


Moment = Literal["assembly", "launch"]
"""Input of a feature: the compiled config alone, or a launch of it."""


@dataclass(frozen=True)
class Feature:
    """A number of a compiled config.

    Attributes:
        name: identifier, as reports and scorers use it.
        unit: "1" for counts and ratios.
        group: heading that listings put it under.
        meaning: one sentence.
        moment: whether it needs a launch, or the compiled config alone.
        read: reads it from a `ConfigReading` or a `LaunchReading`.
    """

    name: str
    unit: str
    group: str
    meaning: str
    moment: Moment
    read: Callable[[Any], float]


FEATURES: Final[dict[str, Feature]] = {}
"""Every feature by name, in the order of listings."""


def register(
    name: str, unit: str, group: str, meaning: str, read: Callable[[ConfigReading], float]
) -> None:
    """Add a feature of the compiled config alone.

    Raises:
        ValueError: the name is taken.
    """
    _add(Feature(name, unit, group, meaning, "assembly", read))


def register_launch(
    name: str, unit: str, group: str, meaning: str, read: Callable[[LaunchReading], float]
) -> None:
    """Add a feature of a launch.

    Raises:
        ValueError: the name is taken.
    """
    _add(Feature(name, unit, group, meaning, "launch", read))


def _add(feature: Feature) -> None:
    if feature.name in FEATURES:
        raise ValueError(f"feature {feature.name!r} is registered twice")
    FEATURES[feature.name] = feature


def schema() -> str:
    """Return a digest of the features' names and units; rows of another schema do not compare."""
    return digest(*(f"{feature.name} {feature.unit}" for feature in FEATURES.values()))


def _launch() -> None:
    def option(name: str, default: float = 0.0) -> Callable[[ConfigReading], float]:
        return lambda r: float(r.artifact.metadata.get(name) or default)

    group = "launch"
    register("num_warps", "1", group, "Warps a program, producers included.", option("num_warps"))
    register("num_stages", "1", group, "Depth of software pipelining.", option("num_stages"))
    register("num_ctas", "1", group, "Programs a cluster.", option("num_ctas", 1.0))
    register("maxnreg", "1", group, "Cap on registers a thread; 0 for none.", option("maxnreg"))


def _resources() -> None:
    units = {
        "regs_per_thread": ("1", "Registers a thread, as ptxas allocates them."),
        "spill_words": ("4 B", "Words a thread keeps in local memory for want of registers."),
        "stack_bytes": ("B", "Local memory a thread, with the functions it calls."),
        "shared_bytes": ("B", "Shared memory a program, as launched."),
        "code_bytes": ("B", "Machine code of the kernel."),
    }
    for name, (unit, meaning) in units.items():
        source = "artifact" if name == "shared_bytes" else "resources"
        register(name, unit, "resources", meaning, attrgetter(f"{source}.{name}"))


OCCUPANCY: Final = {
    "programs_per_sm": ("programs_per_sm", "Programs that fit on an SM at once."),
    "programs_per_sm_by_registers": ("limit_registers", "Programs that an SM's registers allow."),
    "programs_per_sm_by_shared": ("limit_shared", "Programs that an SM's shared memory allows."),
    "occupancy": ("fraction", "Resident warps over those that an SM can hold."),
}
"""Attribute of `Occupancy` and meaning, by name."""


def _occupancy() -> None:
    for name, (attribute, meaning) in OCCUPANCY.items():
        register(name, "1", "occupancy", meaning, attrgetter(f"occupancy.{attribute}"))


def _text() -> None:
    names = {
        "mma_sync": "mma.sync",
        "wgmma": "wgmma.mma_async",
        "tcgen05_mma": "tcgen05.mma",
        "cp_async": "cp.async",
        "cp_async_bulk": "cp.async.bulk",
        "bar_sync": "bar.sync",
        "bra": "bra",
        "ret": "ret",
    }

    def occurrences(mnemonic: str) -> Callable[[ConfigReading], float]:
        return lambda r: r.text[mnemonic]

    for name, mnemonic in names.items():
        meaning = f"Occurrences of {mnemonic} in the whole PTX, with all its forms."
        register(f"text_{name}", "1", "text", meaning, occurrences(mnemonic))


def _instructions() -> None:
    def every(counts: Counts) -> float:
        return sum(counts.instructions.values())

    def in_loops(kind: OpClass) -> Callable[[ConfigReading], float]:
        return lambda r: sum(n for d, n in r.counts.by_class.get(kind, {}).items() if d)

    def total(kind: OpClass) -> Callable[[ConfigReading], float]:
        return lambda r: r.counts.total(kind)

    def hot(kind: OpClass) -> Callable[[ConfigReading], float]:
        return lambda r: r.hot.total(kind)

    group = "instructions"
    register("instructions", "1", group, "Instructions of the kernel.", lambda r: every(r.counts))
    meaning = "Instructions of the hot loop."
    register("instructions_hot", "1", group, meaning, lambda r: every(r.hot))
    register("loops", "1", group, "Loops that work.", _loops)
    register("loop_depth", "1", group, "Depth of the deepest loop.", _depth)
    for kind in OpClass:
        word = kind.value.replace("_", " ").capitalize()
        register(f"{kind}_all", "1", group, f"{word} instructions.", total(kind))
        meaning = f"{word} instructions inside loops."
        register(f"{kind}_in_loops", "1", group, meaning, in_loops(kind))
        register(f"{kind}_hot", "1", group, f"{word} instructions of the hot loop.", hot(kind))


def _loops(reading: ConfigReading) -> float:
    return sum(loop.role == "work" for loop in reading.program.loops)


def _depth(reading: ConfigReading) -> float:
    return max(reading.program.block_depths, default=0)


def _work() -> None:
    def flops(counts: Counts) -> float:
        return sum(sum(depths.values()) for depths in counts.cta_flops.values())

    def moved(space: Space, direction: Direction) -> Callable[[ConfigReading], float]:
        return lambda r: sum(r.hot.thread_bytes.get((space, direction), {}).values())

    group = "work"
    meaning = "Tensor arithmetic of one pass over the kernel's text by a program."
    register("tensor_flops", "FLOP", group, meaning, lambda r: flops(r.counts))
    meaning = "Tensor arithmetic of one trip of the hot loop by a program."
    register("tensor_flops_hot", "FLOP", group, meaning, lambda r: flops(r.hot))
    spaces: tuple[Space, ...] = ("global", "shared")
    directions: tuple[Direction, ...] = ("load", "store")
    for space in spaces:
        for direction in directions:
            name = f"{space}_{direction}_bytes_hot"
            meaning = f"Bytes of {space} memory a thread {direction}s in one trip of the hot loop."
            register(name, "B", group, meaning, moved(space, direction))


def _grid() -> None:
    group = "grid"
    register_launch("programs", "1", group, "Programs of the launch.", lambda r: r.work.programs)
    meaning = "Programs over those that the machine holds."
    register_launch("waves", "1", group, meaning, lambda r: r.waves)
    meaning = "Share of the last wave's places that stay empty."
    register_launch("tail", "1", group, meaning, lambda r: r.tail)
    meaning = "Runs of the most often run code, a program."
    register_launch("trips", "1", group, meaning, lambda r: r.cycles.trips)
    meaning = "Atomic updates that the launch makes of one address, on average."
    register_launch("updates", "1", group, meaning, lambda r: r.work.updates("tt.atomic_rmw"))
    meaning = "Compare-and-swaps of one address: programs that take turns at a lock."
    register_launch("lock_turns", "1", group, meaning, lambda r: r.work.updates("tt.atomic_cas"))
    meaning = "Different bytes that the launch reads and writes."
    register_launch("unique_bytes", "B", group, meaning, lambda r: r.unique_bytes)


def _cycles() -> None:
    group = "cycles"
    units = {
        "tensor": "the tensor cores",
        "issue": "issue slots",
        "shared": "shared memory",
        "l1": "L1 and the load-store units",
        "special": "the special function units",
    }
    for name, unit in units.items():
        meaning = f"Cycles of {unit} of an SM that one program takes."
        register_launch(f"{name}_cycles", "cycle", group, meaning, attrgetter(f"cycles.{name}"))
    chains = {
        "latency": "Cycles of one program's chain of latencies, were it alone on an SM.",
        "longest": "The same for the program whose loops take most trips.",
    }
    for name, meaning in chains.items():
        register_launch(f"{name}_cycles", "cycle", group, meaning, attrgetter(f"cycles.{name}"))
    totals = {
        "l2_bytes": ("B", "Bytes between an SM and L2, a program."),
        "spill_bytes": ("B", "Bytes of spilled registers through L1, a program."),
        "flops": ("FLOP", "Tensor arithmetic of one program, as the assembly has it."),
        "instructions": ("1", "Warp instructions of one program, weighted by execution."),
        "barriers": ("1", "Barriers that one warp meets, weighted by execution."),
    }
    for name, (unit, meaning) in totals.items():
        register_launch(f"program_{name}", unit, "program", meaning, attrgetter(f"cycles.{name}"))


_launch()
_resources()
_occupancy()
_text()
_instructions()
_work()
_grid()
_cycles()
