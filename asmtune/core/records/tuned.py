"""A tuned config: what it is kept by, and what it was made with."""

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
        median_us, p20_us, p80_us: of the samples without outliers, microseconds.
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
"""What came of a config that was tried on the GPU."""


@dataclass(frozen=True)
class TuneKey:
    """What a tuned config is kept by.

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
    """Where a tuned config comes from; what must still hold for it to be used.

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
        provenance: what it was made with.
    """

    key: TuneKey
    winner: Config
    measurements: tuple[Measurement, ...]
    provenance: Provenance
    failures: tuple[tuple[Config, Failure], ...] = ()

    @property
    def median_us(self) -> float | None:
        """The winner's median time in microseconds; None where it was not timed."""
        return next((m.median_us for m in self.measurements if m.config == self.winner), None)

    def to_pandas(self) -> pd.DataFrame:
        """A row a config, the fastest first, then those that failed; times in microseconds.

        Key and provenance are the frame's `attrs`.

        Raises:
            MissingPackageError: there is no pandas.
        """
        from asmtune.core.records.rows import record_frame

        return record_frame(self)

    def _repr_html_(self) -> str:
        from asmtune.core.records.display import record_html

        return record_html(self)
