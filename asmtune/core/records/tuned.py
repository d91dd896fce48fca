"""Tune records: a tuned config with its key, its timings and its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Measurement:
    """Timing of one config on one problem.

    Attributes:
        config: the config.
        median_us, p20_us, p80_us: percentiles of the samples without outliers.
        samples_us: every sample, in the order taken.
    """

    config: Config
    median_us: float
    p20_us: float
    p80_us: float
    samples_us: tuple[float, ...]

    @property
    def spread(self) -> float:
        """(p80 - p20) / median; under 0.05 the timing is called steady."""
        return (self.p80_us - self.p20_us) / self.median_us


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
        winner: the config to launch.
        measurements: every config timed, the winner among them.
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
        """The winner's median time in microseconds; None if it was not timed."""
        return next((m.median_us for m in self.measurements if m.config == self.winner), None)

    def to_pandas(self) -> pd.DataFrame:
        """Returns a row per config: timed ones, fastest first, then failed ones.

        Key and provenance are the frame's `attrs`.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        from asmtune.core.records.rows import record_frame

        return record_frame(self)

    def _repr_html_(self) -> str:
        from asmtune.core.records.rows import record_html

        return record_html(self)
