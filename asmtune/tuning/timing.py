"""From verdicts to timings: loads what was compiled, and lets the bench check and time it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from asmtune.compile.artifacts import ArtifactCache
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.timings import Measurement
from asmtune.core.records.verdicts import Verdict
from asmtune.measure.bench.base import Bench, Entrant, Outcome


class BenchTimer:
    """Times verdicts of one problem; the default config first, since it gives the reference.

    Args:
        bench: checks and times.
        cache: holds the artifacts of the verdicts.
        default: the space's default config.
        watch: told of every outcome as soon as it is known.

    Attributes:
        measurements: of all trials, by config; earlier runs' may be put there.
    """

    def __init__(
        self,
        bench: Bench,
        cache: ArtifactCache,
        default: Config,
        watch: Callable[[Sequence[Outcome]], None],
    ) -> None:
        self._bench = bench
        self._cache = cache
        self._default = default
        self._watch = watch
        self._begun = False
        self.measurements: dict[Config, Measurement] = {}

    def trial(self, verdicts: Sequence[Verdict]) -> list[Outcome]:
        """A timing or a failure for each verdict, in order."""
        entrants, outcomes = self._entrants(verdicts)
        default = next((e for e in entrants if e.config == self._default), None)
        if default is not None and not self._begun:
            self._begun = True
            entrants.remove(default)
            outcomes[default.config] = self._bench.begin(default)[1]
        outcomes.update(self._bench.trial(entrants) if entrants else ())
        told = [(verdict.config, outcomes[verdict.config]) for verdict in verdicts]
        self.measurements.update((c, o) for c, o in told if isinstance(o, Measurement))
        self._watch(told)
        return told

    def final(self, verdicts: Sequence[Verdict]) -> list[Outcome]:
        """Fresh timings of finalists, interleaved."""
        entrants, outcomes = self._entrants(verdicts)
        outcomes.update(self._bench.final(entrants) if entrants else ())
        return [(verdict.config, outcomes[verdict.config]) for verdict in verdicts]

    def energy(self, verdict: Verdict) -> float | None:
        """Millijoules of one launch; None where the GPU has no counter."""
        entrants, _ = self._entrants([verdict])
        return self._bench.energy(entrants[0]) if entrants else None

    def _entrants(
        self, verdicts: Sequence[Verdict]
    ) -> tuple[list[Entrant], dict[Config, Measurement | Failure]]:
        entrants: list[Entrant] = []
        lost: dict[Config, Measurement | Failure] = {}
        for verdict in verdicts:
            artifact = self._cache.get(verdict.artifact or "")
            if isinstance(artifact, Artifact):
                entrants.append(Entrant(verdict.config, artifact))
            else:
                lost[verdict.config] = artifact or Failure(
                    "launch", "lost", "its artifact is no longer in the cache"
                )
        return entrants, lost
