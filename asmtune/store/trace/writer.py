"""Writing a trace as a run goes on, without ever failing the run."""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.core.records.verdicts import Verdict
from asmtune.store.trace import folder as places
from asmtune.store.trace.json_codec import encoded, encoded_header
from asmtune.store.trace.rows import (
    CompiledRow,
    CostRow,
    DroppedRow,
    PredictionRow,
    TimedRow,
    Timing,
)
from asmtune.store.trace.run import Ending, Header

MOST_FORESEEN: Final = 300
"""Configs whose prediction is kept, the best by rank; of the rest their number."""

_REASON: Final = 240  # characters


class TraceWarning(UserWarning):
    """A trace cannot be written; the run goes on without it."""


class TraceWriter:
    """Appends one line an event to a run's file; each is on disk before the call returns.

    What cannot be written, on a full disk or in a read-only folder, gives one `TraceWarning`,
    and no more is written. Use as a context manager, or `close` it.

    Args:
        folder: of all runs (`Settings.runs_dir`); made where missing, with mode 0700.
        header: what the run sets out to do.

    Attributes:
        run: the run's id, whether or not it can be written.
        path: its file; None where it could not be made.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        self.run = places.run_id(header)
        self.path: Path | None = None
        self._start = time.monotonic()
        self._file = -1
        try:
            self.path, self._file = places.create(folder, self.run)
            self.run = self.path.stem
            places.prune(folder)
        except OSError as error:
            self._give_up(folder, error)
        self._write("start", encoded_header(header, self.run))

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the trace; what is written later is dropped."""
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)

    def stage(self, name: str, seconds: float) -> None:
        """A stage of the run took so long."""
        self._write("stage", {"name": name, "seconds": seconds})

    def foreseen(self, verdicts: Sequence[Verdict], default: Config | None = None) -> None:
        """What is known of all configs before compiling: the best, the default, and what fell.

        Args:
            verdicts: of every config of the space; those with a rank, a score or a predicted time
                are kept in that order.
            default: is kept whatever its rank.
        """
        ranked = _ranked(verdicts)
        kept = [p for n, p in enumerate(ranked) if n < MOST_FORESEEN or p.config == default]
        values = {"count": len(verdicts), "configs": kept, "dropped": _dropped(verdicts)}
        self._write("foreseen", values)

    def batch(self, number: int, seconds: float, verdicts: Iterable[Verdict]) -> None:
        """A batch of configs is compiled, which took so long."""
        rows = [_compiled(verdict) for verdict in verdicts]
        self._write("batch", {"number": number, "seconds": seconds, "rows": rows})

    def trial(
        self,
        number: int,
        seconds: float,
        outcomes: Iterable[tuple[Config, Measurement | Failure]],
        *,
        best_us: float | None,
        expected_gain: float | None = None,
    ) -> None:
        """Configs were timed together, which took so long; `best_us` is of the run so far."""
        values: dict[str, Any] = {"number": number, "seconds": seconds, "best_us": best_us}
        values |= {"expected_gain": expected_gain, "rows": [_timed(*o) for o in outcomes]}
        self._write("trial", values)

    def final(self, outcomes: Iterable[tuple[Config, Measurement | Failure]]) -> None:
        """Finalists and default were timed again, in fresh interleaved rounds."""
        self._write("final", {"rows": [_timed(*outcome) for outcome in outcomes]})

    def costs(self, costs: Iterable[CostRow]) -> None:
        """What launches cost, where more than time counts."""
        self._write("costs", {"rows": list(costs)})

    def note(self, text: str) -> None:
        """What a reader of the run must know."""
        self._write("note", {"text": text})

    def end(self, ending: Ending) -> None:
        """The run has ended, and how; closes the file."""
        self._write("end", encoded(ending))
        self.close()

    def _write(self, event: str, values: Mapping[str, Any]) -> None:
        if self._file < 0:
            return
        t = round(time.monotonic() - self._start, 3)
        line = encoded({"event": event, "t": t, **values})
        data = json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        try:
            while data:
                # Not buffered: what the kernel has taken outlives a kill of this process.
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self._give_up(self.path, error)

    def _give_up(self, place: Path | None, error: OSError) -> None:
        self.close()
        reason = error.strerror or str(error)
        warnings.warn(
            f"trace {place}: {reason}; the run goes on without it", TraceWarning, stacklevel=4
        )


def _ranked(verdicts: Sequence[Verdict]) -> list[PredictionRow]:
    """Predictions, best first; the rank is the place in this order where none is given."""
    told = [v for v in verdicts if (v.rank, v.score, v.predicted_us) != (None, None, None)]
    told.sort(key=_order)
    return [
        PredictionRow(v.config, v.rank or place, v.score, v.predicted_us, v.dropped_at, _reason(v))
        for place, v in enumerate(told, 1)
    ]


def _order(verdict: Verdict) -> tuple[float, float, float]:
    """By rank, else by score, else by predicted time."""
    values = (
        verdict.rank,
        None if verdict.score is None else -verdict.score,
        verdict.predicted_us,
    )
    rank, score, time_us = (math.inf if value is None else value for value in values)
    return rank, score, time_us


def _dropped(verdicts: Iterable[Verdict]) -> list[DroppedRow]:
    tally: dict[tuple[str, str], tuple[int, str]] = {}
    for verdict in verdicts:
        if verdict.dropped_at is not None:
            rule = verdict.reasons[0].rule if verdict.reasons else verdict.dropped_at
            key = (verdict.dropped_at, rule)
            count, example = tally.get(key, (0, _reason(verdict) or ""))
            tally[key] = (count + 1, example)
    return [DroppedRow(*key, *value) for key, value in tally.items()]


def _compiled(verdict: Verdict) -> CompiledRow:
    return CompiledRow(
        config=verdict.config,
        kept=verdict.kept,
        dropped_at=verdict.dropped_at,
        reason=_reason(verdict),
        predicted_us=verdict.predicted_us,
        rank=verdict.rank,
        regs=_count(verdict, "regs_per_thread"),
        spills=_count(verdict, "spill_words"),
        shared=_count(verdict, "shared_bytes"),
    )


def _count(verdict: Verdict, feature: str) -> int | None:
    value = None if verdict.features is None else verdict.features.get(feature)
    return None if value is None else int(value)


def _reason(verdict: Verdict) -> str | None:
    """Why it fell, in one line; None where it did not."""
    if verdict.dropped_at is None:
        return None
    told: Iterator[object] = (part for part in (verdict.failure, *verdict.reasons) if part)
    return " ".join(str(next(told, verdict.dropped_at)).split())[:_REASON]


def _timed(config: Config, outcome: Measurement | Failure) -> TimedRow:
    if isinstance(outcome, Failure):
        detail = outcome.detail.strip()[:_REASON]
        return TimedRow(config, Failure(outcome.stage, outcome.kind, detail))
    samples = len(outcome.samples_us)
    return TimedRow(config, Timing(outcome.median_us, outcome.p20_us, outcome.p80_us, samples))
