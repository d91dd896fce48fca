"""What came of a config on the GPU."""

from __future__ import annotations

from dataclasses import dataclass

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure


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
