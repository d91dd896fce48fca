"""The interface of a bench, which checks and times compiled configs of one problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from asmtune.compile.lower import Lowering
from asmtune.core.alternatives import Alternatives
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Artifact
from asmtune.core.records.tuned import Outcome
from asmtune.ir.ttir.slots import ConfigSlots
from asmtune.measure.bench.hooks import DoBench, TunerHooks
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.timing.policy import TimingPolicy

__all__ = ["Bench", "BenchSetup", "Outcome", "TimingCandidate", "TimingSetup"]


@dataclass(frozen=True)
class TimingCandidate:
    """Pairs a config with its artifact, to be timed.

    Attributes:
        config, artifact: the two.
        slots: where its programs write, by its IR.
    """

    config: Config
    artifact: Artifact
    slots: ConfigSlots = field(default_factory=ConfigSlots)


@dataclass(frozen=True, kw_only=True)
class TimingSetup:
    """Says how configs are checked and timed, in any process.

    Attributes:
        effects: what the kernel does to its arguments.
        checks: how outputs are checked.
        policy: how to race; unused with `do_bench`.
        seed: seed of the order of launches.
        do_bench: the user's function that times, in place of races.
        hooks: called around every launch.
        alternatives: the user's functions that candidates' configs name.
    """

    effects: Effects
    checks: CheckOptions
    policy: TimingPolicy
    seed: int = 0
    do_bench: DoBench | None = None
    hooks: TunerHooks = field(default_factory=TunerHooks)
    alternatives: Alternatives = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BenchSetup(TimingSetup):
    """Says what is timed, and how.

    Attributes:
        lowering: the problem's, for the GPU that times.
        run_timeout_s: seconds that one config may take for one step (loading, one launch,
            comparing its output) before its process is ended; used in child processes only.
    """

    lowering: Lowering
    run_timeout_s: float = 10.0


class Bench(Protocol):
    """Times configs of one problem; a config that cannot run costs itself alone.

    Each method raises a `MeasureError` when nothing can be timed any more, and an `InputError` when
    a function of the user's cannot be sent to the process that times.

    Attributes:
        device: name of the GPU, as its driver gives it.
        notes: remarks on how outputs were checked and timings taken.
    """

    @property
    def device(self) -> str: ...  # noqa: D102

    @property
    def notes(self) -> tuple[str, ...]: ...  # noqa: D102

    def begin(self, default: TimingCandidate) -> Outcome:
        """Time the default config; its output is what all other configs must compute.

        Has to be called first. If the config cannot run, the first config of a trial that runs
        takes its place.
        """

    def trial(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Check each candidate's output, race those that pass, and return outcomes in order.

        A config that is clearly slower than the best so far is not timed to the end.
        """

    def final(self, candidates: Sequence[TimingCandidate]) -> list[Outcome]:
        """Time all candidates again, interleaved, and return outcomes in order."""

    def close(self) -> None:
        """Restore the contents of every argument, and free all memory and processes."""
