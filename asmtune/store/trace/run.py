"""A tuning run as its trace tells it: frozen records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asmtune.base.fingerprint import versions
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import TuneKey
from asmtune.store.trace.rows import (
    BatchRow,
    CompiledRow,
    CostRow,
    InitialRanking,
    TimedRow,
    Timing,
    TrialRow,
)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Header:
    """What a run set out to do.

    Attributes:
        kernel: the problem's name.
        key: what its record is kept by.
        reference: the kernel module, by name or path; None where there is none.
        target: name of the target.
        effort: the preset's values by name.
        strategy: name of the search strategy.
        seed: of everything random.
        default: the config to beat.
        versions: of asmtune, triton and torch.
        date: ISO 8601, UTC.
        sizes: the shape that the kernel module was given, which the key may hold in buckets;
            None where there is no module, and in traces of older asmtunes.
    """

    kernel: str
    key: TuneKey
    reference: str | None
    target: str
    effort: Mapping[str, Any]
    strategy: str
    seed: int
    default: Config
    versions: Mapping[str, str] = field(default_factory=versions)
    date: str = field(default_factory=_now)
    sizes: Mapping[str, Any] | None = None

    @property
    def shape(self) -> Mapping[str, Any]:
        """The sizes where they are known, else the key's."""
        return self.key.shape if self.sizes is None else self.sizes


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        winner: None where no config could be timed.
        median_us, default_us: of the winner and of the default, from the last rounds.
        reason: why no more was tried, in words.
        seconds: by stage.
        compiled, timed: how many configs.
    """

    winner: Config | None
    median_us: float | None
    default_us: float | None
    reason: str
    seconds: Mapping[str, float]
    compiled: int
    timed: int

    @property
    def speedup(self) -> float | None:
        """The default's time over the winner's; None where one is not known."""
        if self.median_us is None or self.default_us is None:
            return None
        return self.default_us / self.median_us


@dataclass(frozen=True)
class Summary:
    """A run in short; `ending`, and its `seconds`, are None where it was killed or goes on."""

    path: Path
    run: str
    header: Header
    ending: Ending | None
    seconds: float | None = None


@dataclass(frozen=True)
class TracedRun:
    """All that the trace of a run holds.

    Attributes:
        path: the file.
        run: its id.
        header: what it set out to do.
        stages: (name, seconds) in their order.
        foreseen: the space before compiling; None where it did not come so far.
        batches, trials: in their order.
        finals: finalists and default, timed in fresh interleaved rounds.
        costs: what launches cost, where more than time counted.
        notes: what a reader must know.
        ending: None where it was killed or goes on.
        seconds: from the start to the last line.
    """

    path: Path
    run: str
    header: Header
    stages: tuple[tuple[str, float], ...] = ()
    foreseen: InitialRanking | None = None
    batches: tuple[BatchRow, ...] = ()
    trials: tuple[TrialRow, ...] = ()
    finals: tuple[TimedRow, ...] = ()
    costs: tuple[CostRow, ...] = ()
    notes: tuple[str, ...] = ()
    ending: Ending | None = None
    seconds: float = 0.0

    def compiled(self) -> dict[Config, CompiledRow]:
        """What was sent to the compiler, by config."""
        return {row.config: row for batch in self.batches for row in batch.rows}

    def failures(self) -> dict[Config, Failure]:
        """What could not be launched, or gave a wrong output, by config."""
        return {c: o for c, o in self.outcomes().items() if isinstance(o, Failure)}

    def timings(self) -> dict[Config, Timing]:
        """What was timed, fastest first; the last rounds count where a config was in them."""
        timed = {c: o for c, o in self.outcomes().items() if isinstance(o, Timing)}
        return dict(sorted(timed.items(), key=lambda item: item[1].median_us))

    def outcomes(self) -> dict[Config, Timing | Failure]:
        """What launching gave, by config; the last rounds count where a config was in them."""
        rows: Iterator[TimedRow] = (row for trial in self.trials for row in trial.rows)
        return {row.config: row.outcome for row in (*rows, *self.finals)}
