"""Tuning: the funnel, then the clock, then a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from asmtune.compile import ArtifactCache, Lowering
from asmtune.compile.load import load_cached
from asmtune.compile.source import source_digest
from asmtune.config import Config
from asmtune.errors import MeasureError
from asmtune.fingerprint import canonical, digest, versions
from asmtune.funnel import Funnel
from asmtune.measure import (
    Subject,
    TimingPolicy,
    driver_version,
    preserved,
    time_interleaved,
)
from asmtune.problem import Problem
from asmtune.records import (
    Artifact,
    Failure,
    Measurement,
    Provenance,
    PruneReport,
    TuneKey,
    TuneRecord,
)
from asmtune.space import Space


@dataclass(frozen=True)
class Tuner:
    """Finds the fastest config of a space on this machine's GPU.

    Attributes:
        funnel: prunes before anything is timed; its target is this GPU.
        policy: how to time.
    """

    funnel: Funnel
    policy: TimingPolicy = field(default_factory=TimingPolicy)

    def tune(self, problem: Problem, space: Space, key: TuneKey) -> TuneRecord:
        """Prunes, times what is left, and names the winner.

        The problem's tensors hold what they held before.

        Raises:
            InputError: space, problem and kernel do not fit.
            CompileError: no config can run.
            MeasureError: no config that compiled can be launched.
        """
        default = space.first(**problem.shape)
        # The front end runs each config's pre_hook, so that pruning may write as well.
        with preserved(problem.arguments.values()):
            report = self.funnel.prune(problem, space)
            measurements, failures = self._time(problem, report, default)
        if not measurements:
            config, failure = failures[0]
            raise MeasureError(
                f"none of {len(failures)} configs of {problem.name} can be launched; "
                f"{config}: {failure}"
            )
        winner = min(measurements, key=lambda m: m.median_us).config
        failures += [(v.config, v.failure) for v in report.verdicts if v.failure is not None]
        made = provenance(problem, space, tiles=self.funnel.tiles)
        return TuneRecord(key, winner, tuple(measurements), made, tuple(failures))

    def _time(
        self, problem: Problem, report: PruneReport, default: Config
    ) -> tuple[list[Measurement], list[tuple[Config, Failure]]]:
        """Times every distinct binary once; configs that share one share its timing."""
        settings = self.funnel.settings
        lowering = Lowering(problem, self.funnel.target, settings.compile_timeout_s)
        cache = ArtifactCache(settings.artifacts_dir, settings.artifacts_bytes)
        subjects: dict[str, Subject] = {}
        sharing: dict[str, list[Config]] = {}
        failures: list[tuple[Config, Failure]] = []
        for verdict in report.kept:
            found = load_cached(lowering, verdict.config, cache, verdict.artifact)
            if isinstance(found, Failure):
                failures.append((verdict.config, found))
                continue
            artifact, launch = found
            binary = _binary_digest(artifact, problem.programs(verdict.config))
            sharing.setdefault(binary, []).append(verdict.config)
            subject = Subject(verdict.config, launch.run, launch.prepare)
            subjects.setdefault(binary, subject).always |= verdict.config == default
        measured, unlaunched = time_interleaved(list(subjects.values()), self.policy)
        by_config = {m.config: m for m in measured}
        measurements = [
            replace(by_config[subject.config], config=config)
            for binary, subject in subjects.items()
            if subject.config in by_config
            for config in sharing[binary]
        ]
        return measurements, failures + unlaunched


def provenance(problem: Problem, space: Space, *, tiles: bool = False) -> Provenance:
    """What a config tuned here and now depends on.

    Args:
        problem: the launch.
        space: the configs.
        tiles: whether a persistent kernel's tile axes are searched as well.
    """
    made_with = versions()
    return Provenance(
        source=source_digest(problem.kernel),
        space=space_digest(list(space.configs(**problem.shape)), tiles=tiles),
        triton=made_with["triton"],
        torch=made_with["torch"],
        asmtune=made_with["asmtune"],
        driver=driver_version(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def space_digest(configs: Sequence[Config], *, tiles: bool = False) -> str:
    """Identity of what is searched: a set of configs, whatever their order, and how."""
    listed = sorted(canonical(config.to_dict()) for config in configs)
    return digest(*listed, *(("tiles",) if tiles else ()))


def _binary_digest(artifact: Artifact, programs: tuple[int, int, int]) -> str:
    """Equal for configs that launch the same machine code in the same way."""
    launch = [artifact.metadata.get(name) for name in ("num_warps", "num_ctas", "shared")]
    return digest(artifact.cubin, canonical([launch, programs]))
