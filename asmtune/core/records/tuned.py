"""Tune records: a tuned config with its key, its timings and its provenance."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the sorted samples lie, interpolated linearly.

    It is definition 7 of Hyndman and Fan (1996), the default of NumPy and R.
    """
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


@dataclass(frozen=True)
class SampleStatistics:
    """The statistics that papers cite, of all samples, outliers among them.

    Of fewer than 10 samples p90, and of fewer than 100 p99, lies between the two slowest, so
    that a report names their number.

    Attributes:
        samples: their number.
        p50_us, p90_us, p99_us: percentiles, as `quantile` defines them.
        rsd: relative standard deviation: that of a sample (n - 1) over the mean; None of one.
    """

    samples: int
    p50_us: float
    p90_us: float
    p99_us: float
    rsd: float | None

    @classmethod
    def of(cls, samples_us: Sequence[float]) -> SampleStatistics | None:
        """Compute them; None where no sample was kept."""
        if not samples_us:
            return None
        ordered, count = sorted(samples_us), len(samples_us)
        p50, p90, p99 = (quantile(ordered, share) for share in (0.5, 0.9, 0.99))
        if count == 1:
            return cls(count, p50, p90, p99, None)
        mean = math.fsum(ordered) / count
        variance = math.fsum((sample - mean) ** 2 for sample in ordered) / (count - 1)
        return cls(count, p50, p90, p99, math.sqrt(variance) / mean if mean else None)


@dataclass(frozen=True)
class Measurement:
    """Timing of one config on one problem.

    Attributes:
        config: the config.
        median_us, p20_us, p80_us: percentiles of the samples without outliers.
        samples_us: every sample, in the order taken.
        error: p99 of the relative error of its outputs, if a bound was given; not stored.
    """

    config: Config
    median_us: float
    p20_us: float
    p80_us: float
    samples_us: tuple[float, ...]
    error: float | None = None

    @property
    def spread(self) -> float:
        """Return (p80 - p20) / median; under 0.05 the timing is called steady."""
        return (self.p80_us - self.p20_us) / self.median_us

    @property
    def statistics(self) -> SampleStatistics | None:
        """Return the statistics of all samples; None where a file left the samples out."""
        return SampleStatistics.of(self.samples_us)

    def cited(self) -> dict[str, Any]:
        """Return the statistics by name; of a timing without samples their number alone."""
        found = self.statistics
        return {"samples": 0} if found is None else dict(vars(found))


Outcome = tuple[Config, Measurement | Failure]
"""A config that was launched, with its timing or failure."""


@dataclass(frozen=True)
class TuneKey:
    """The key of a tuned config in the store.

    Attributes:
        kernel: `module.qualname` of the kernel.
        shape: key argument values by name.
        dtypes: canonical dtype of each tensor argument by name.
        device: the device's name, as the driver gives it ("NVIDIA H200").
    """

    kernel: str
    shape: Mapping[str, Any]
    dtypes: Mapping[str, str]
    device: str


@dataclass(frozen=True)
class Provenance:
    """Versions and digests that a tuned config was made with; used only while they still hold.

    Attributes:
        source: digest of the kernel's source and of what it calls.
        space: digest of the configs that were searched.
        triton, torch, asmtune: versions.
        driver: the GPU driver's version.
        date: ISO 8601, UTC.
    """

    source: str
    space: str
    triton: str
    torch: str
    asmtune: str
    driver: str
    date: str


@dataclass(frozen=True)
class TuneRecord:
    """The outcome of tuning one key.

    Attributes:
        key: what was tuned.
        winner: the config to launch; one with an `alternative` names the function to call, and is
            the best config apart from that.
        measurements: every config timed, the winner among them, and alternatives.
        failures: configs that did not compile or launch.
        provenance: versions and digests that it was made with.
    """

    key: TuneKey
    winner: Config
    measurements: tuple[Measurement, ...]
    provenance: Provenance
    failures: tuple[tuple[Config, Failure], ...] = ()

    @property
    def median_us(self) -> float | None:
        """Return the winner's median time in microseconds; None if it was not timed."""
        return None if self.timing is None else self.timing.median_us

    @property
    def timing(self) -> Measurement | None:
        """Return the winner's timing; None if it was not timed."""
        return next((m for m in self.measurements if m.config == self.winner), None)

    @property
    def config_timings(self) -> tuple[Measurement, ...]:
        """Return the timings of configs, without those of alternatives."""
        return tuple(m for m in self.measurements if m.config.alternative is None)

    @property
    def tried(self) -> frozenset[str]:
        """Return the names of the alternatives that were timed, or that failed."""
        configs = (*(m.config for m in self.measurements), *(config for config, _ in self.failures))
        return frozenset(c.alternative for c in configs if c.alternative is not None)

    def winner_among(self, alternatives: Collection[str]) -> Config:
        """Return the fastest, where only alternatives of these names can be called.

        A config wins over an alternative that is no faster.
        """
        if self.winner.alternative is None or self.winner.alternative in alternatives:
            return self.winner
        best = self.winner.plain
        times = {
            m.config.alternative: m.median_us for m in self.measurements if m.config.plain == best
        }
        own = times.get(None, math.inf)
        others = [(us, name) for name, us in times.items() if name in alternatives and us < own]
        return best.with_alternative(min(others)[1]) if others else best
