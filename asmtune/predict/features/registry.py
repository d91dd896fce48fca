"""The registry of features: names, units, meanings, and how to read each.

It is the one source for the command line's listing, the reports' columns, the
documentation and the learned scorer's schema. A feature is added in
`asmtune.predict.features.catalog`, in one place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from asmtune.base.fingerprint import digest
from asmtune.core.hardware.model import Target
from asmtune.core.occupancy import Occupancy
from asmtune.core.records.artifacts import Artifact
from asmtune.ir.asm.amdgcn import AmdgpuResources
from asmtune.ir.asm.counts import Counts
from asmtune.ir.asm.cubin import Resources
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
