"""What the lines of a trace hold of configs: foreseen, compiled, timed, costed."""

from __future__ import annotations

from dataclasses import dataclass

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure


@dataclass(frozen=True)
class PredictionRow:
    """What was foreseen of one config before compiling; `dropped_at` as in `Verdict`."""

    config: Config
    rank: int | None
    score: float | None
    predicted_us: float | None
    dropped_at: str | None
    reason: str | None


@dataclass(frozen=True)
class DroppedRow:
    """How many configs fell at a stage for one reason, and what it said of the first."""

    stage: str
    reason: str
    count: int
    example: str


@dataclass(frozen=True)
class InitialRanking:
    """The space before compiling.

    Attributes:
        count: configs in all.
        configs: those that matter: the best by rank, and the default.
        dropped: what fell, by stage and reason.
    """

    count: int
    configs: tuple[PredictionRow, ...]
    dropped: tuple[DroppedRow, ...]

    @property
    def left_out(self) -> int:
        """Configs of which no more is known than their number."""
        return self.count - len(self.configs)


@dataclass(frozen=True)
class CompiledRow:
    """One config that was sent to the compiler; `spills` in words a thread, `shared` in bytes."""

    config: Config
    kept: bool
    dropped_at: str | None
    reason: str | None
    predicted_us: float | None
    rank: int | None
    regs: int | None
    spills: int | None
    shared: int | None


@dataclass(frozen=True)
class BatchRow:
    """Configs compiled together, `t` seconds after the start."""

    t: float
    number: int
    seconds: float
    rows: tuple[CompiledRow, ...]


@dataclass(frozen=True)
class Timing:
    """Timing of one config, microseconds; `samples` is their number."""

    median_us: float
    p20_us: float
    p80_us: float
    samples: int

    @property
    def spread(self) -> float:
        """(p80 - p20) / median."""
        return (self.p80_us - self.p20_us) / self.median_us


@dataclass(frozen=True)
class TimedRow:
    """One config that was launched, and what came of it."""

    config: Config
    outcome: Timing | Failure


@dataclass(frozen=True)
class TrialRow:
    """Configs timed together, `t` seconds after the start.

    Attributes:
        expected_gain: share of the best time that the next batch was expected to save.
        best_us: of the run so far.
    """

    t: float
    number: int
    seconds: float
    expected_gain: float | None
    best_us: float | None
    rows: tuple[TimedRow, ...]


@dataclass(frozen=True)
class CostRow:
    """What a launch of a config costs; `on_front` where no other is better in everything."""

    config: Config
    time_us: float
    energy_mj: float | None
    memory_bytes: int
    on_front: bool
