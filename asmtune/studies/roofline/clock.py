"""Times taken now, on this machine's GPU: each config is checked, then timed with the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from asmtune.base.errors import InputError
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.lower import Lowering
from asmtune.core.failures import guarded
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import match_device
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.tuned import Outcome
from asmtune.core.records.verdicts import Verdict
from asmtune.measure.bench.base import Bench, BenchSetup, TimingCandidate
from asmtune.measure.bench.dedup import open_bench
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.timing.nvml import device_name
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.predict.prune.front import Front
from asmtune.studies.roofline.survey import RooflineSubject


def isolated(setup: BenchSetup) -> Bench:
    """Opens a bench in a process of its own, which a config may break or hang."""
    return open_bench(setup, isolate=True)


@dataclass(frozen=True)
class PairClock:
    """Times the configs of a subject against each other, interleaved, with a cold L2.

    Attributes:
        place: where tensors are made, as PyTorch has it.
        policy: how to time.
        opener: opens the bench.
    """

    place: str = "cuda"
    policy: TimingPolicy = field(default_factory=TimingPolicy)
    opener: Callable[[BenchSetup], Bench] = isolated

    def outcomes(
        self, subject: RooflineSubject, front: Front, verdicts: Sequence[Verdict]
    ) -> list[Outcome]:
        """Times the config of each verdict, in order; the first gives the reference.

        Raises:
            MeasureError: there is no GPU, or nothing can be timed any more.
        """
        problem = guarded("input", lambda: subject.make(self.place))
        cache = ArtifactCache.of(front.settings)
        artifacts = [(v.config, cache.get(v.artifact or "")) for v in verdicts]
        if isinstance(problem, Failure):
            return [(config, problem) for config, _ in artifacts]
        effects = Effects.of(front.works([c for c, _ in artifacts]), problem.arguments)
        effects = effects.beside(front.works([artifacts[0][0]]), problem.arguments)
        setup = BenchSetup(
            lowering=Lowering(problem, front.target, front.settings.compile_timeout_s),
            effects=effects,
            checks=CheckOptions(),
            policy=self.policy,
        )
        entrants = [
            TimingCandidate(c, artifact)
            for c, artifact in artifacts
            if isinstance(artifact, Artifact)
        ]
        with closing(self.opener(setup)) as bench:
            begun = bench.begin(entrants[0]) if entrants else None
            timed = dict(bench.final(entrants)) if begun else {}
        lost = Failure("launch", "lost", "its artifact is no longer in the cache")
        return [(verdict.config, timed.get(verdict.config, lost)) for verdict in verdicts]


def check_gpu(target: Target) -> None:
    """Makes sure that this machine's GPU is the target.

    Raises:
        InputError: the GPU is another model, or there is none.
    """
    import torch

    if not torch.cuda.is_available():
        raise InputError(
            "--measure needs a CUDA GPU, and there is none on this machine: leave it out"
        )
    name = device_name()
    if match_device(name) != target:
        raise InputError(
            f"--measure times on this machine's {name}, and the target is {target.name}: "
            "give its name as --target, or leave --measure out"
        )
