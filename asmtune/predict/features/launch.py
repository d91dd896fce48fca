"""Features of a launch: the program's cycles, the grid on the machine, the bytes in all."""

from __future__ import annotations

import math
from dataclasses import dataclass

from asmtune.core.hardware.model import Target
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.cycles import Cycles, program_cycles
from asmtune.predict.features.execution import executions
from asmtune.predict.features.profile import Profile


@dataclass(frozen=True)
class LaunchReading:
    """All that is known of a compiled config in one launch.

    Attributes:
        profile: the compiled config.
        work: of the launch.
        target: the machine.
        cycles: of one program.
    """

    profile: Profile
    work: Work
    target: Target
    cycles: Cycles

    @classmethod
    def of(cls, profile: Profile, work: Work, target: Target) -> LaunchReading:
        """Weighs a profile by a launch."""
        runs = executions(profile, work)
        return cls(profile, work, target, program_cycles(profile, runs, work, target))

    @property
    def resident(self) -> float:
        """Programs that an SM holds at once; 1 where none fits."""
        return max(1.0, self.profile.static["programs_per_sm"])

    @property
    def waves(self) -> float:
        """Rounds in which the grid runs, with the last one's fraction."""
        return self.work.programs / (self.resident * self.target.sms)

    @property
    def unique_bytes(self) -> float:
        """Different bytes that the launch moves between DRAM and the SMs."""
        return self.work.unique_read_bytes + self.work.unique_written_bytes

    @property
    def tail(self) -> float:
        """Share of the program slots that the last wave leaves empty; 0 where it is full."""
        return math.ceil(self.waves) - self.waves
