"""Read an artifact into a profile, and a profile and a launch into features."""

from __future__ import annotations

from dataclasses import dataclass

from asmtune.base.errors import ParseError
from asmtune.core.hardware.model import Target
from asmtune.core.occupancy import occupancy
from asmtune.core.records.artifacts import Artifact
from asmtune.core.records.verdicts import Features
from asmtune.ir.asm.amdgcn import AmdgpuResources
from asmtune.ir.asm.counts import PTX, InstructionSet, count, hottest_loop, mnemonic_counts
from asmtune.ir.asm.cubin import Resources, read_cubin
from asmtune.ir.asm.program import AsmFunction
from asmtune.ir.asm.ptx import parse_ptx, ptx_kernel
from asmtune.ir.ttir.work import Work
from asmtune.predict.features.catalog import FEATURES, ConfigReading, LaunchReading
from asmtune.predict.features.chain import program_chains
from asmtune.predict.features.profile import Profile, Segment, segments
from asmtune.predict.features.requests import BankWays, Requests
from asmtune.predict.features.sketch.moves import read_moves


@dataclass(frozen=True)
class ProfileReader:
    """Reads artifacts for one target; can be sent to a worker process."""

    target: Target

    def __call__(self, artifact: Artifact) -> Profile:
        """Read an artifact into a profile, which holds for every launch of it.

        Raises:
            ParseError: the PTX or the cubin is damaged.
        """
        reading = self.reading(artifact)
        static = {
            name: float(feature.read(reading))
            for name, feature in FEATURES.items()
            if feature.moment == "assembly"
        }
        warps = int(artifact.metadata["num_warps"])
        stages = int(artifact.metadata["num_stages"])
        parts = self._segments(reading.program, warps, stages)
        return Profile(parts, warps, stages, static, *_moves(artifact, warps))

    def _segments(self, program: AsmFunction, warps: int, stages: int) -> tuple[Segment, ...]:
        """Cut a kernel into segments, each with its chain of latencies."""
        return segments(program, program_chains(program, self.target, warps, stages))

    def reading(self, artifact: Artifact) -> ConfigReading:
        """Parse the assembly that features are taken from."""
        resources = read_cubin(artifact.cubin)
        listing = parse_ptx(artifact.outputs["ptx"])
        return self._counted(artifact, ptx_kernel(listing), resources, mnemonic_counts(listing))

    def _counted(
        self,
        artifact: Artifact,
        program: AsmFunction,
        resources: Resources | AmdgpuResources,
        text: dict[str, int],
        isa: InstructionSet = PTX,
    ) -> ConfigReading:
        counts = count(program, isa=isa)
        loop = hottest_loop(program, isa.class_of)
        sgprs = (resources.sgprs,) if isinstance(resources, AmdgpuResources) else ()
        return ConfigReading(
            artifact=artifact,
            target=self.target,
            resources=resources,
            occupancy=occupancy(
                self.target,
                int(artifact.metadata["num_warps"]),
                max(1, resources.regs_per_thread),
                artifact.shared_bytes,
                *sgprs,
            ),
            program=program,
            counts=counts,
            hot=counts if loop is None else count(program, loop.blocks, isa),
            text=text,
        )


def _moves(artifact: Artifact, warps: int) -> tuple[Requests, BankWays]:
    """Read requests and conflicts off an artifact's TTGIR; none if it has none that can be read.

    The PTX is read either way: requests then count as those of neighbours beside each other.
    """
    try:
        return read_moves(artifact.outputs.get("ttgir", ""), warps)
    except ParseError:
        return {}, {}


def launch_features(profile: Profile, work: Work, target: Target) -> Features:
    """Return all features of a compiled config in one launch."""
    reading = LaunchReading.of(profile, work, target)
    weighed = {
        name: float(feature.read(reading))
        for name, feature in FEATURES.items()
        if feature.moment == "launch"
    }
    return Features({**profile.static, **weighed})
