"""Writer of a trace while a run goes on; an error of the file never fails the run."""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from asmtune.base.trust import fault_line, is_news
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.core.records.verdicts import Verdict
from asmtune.store.trace.reader import FORMAT, VERSION, encoded
from asmtune.store.trace.run import (
    CompiledRow,
    DroppedRow,
    Ending,
    Header,
    PredictionRow,
    TimedRow,
    Timing,
    create,
    prune,
    run_id,
)

MOST_RANKED: Final = 300
"""Configs whose prediction is written, the best by rank; the others are only counted."""

_REASON: Final = 240  # characters


class TraceWarning(UserWarning):
    """A trace cannot be written; the run goes on without it."""


class TraceWriter:
    """Append one line per event to a run's file; a call returns when its line is written.

    An error, such as a full disk or a read-only folder, gives one `TraceWarning`, and no more
    is written. Use as a context manager, or `close` it.

    Args:
        folder: folder of all runs (`Settings.runs_dir`); made where missing, with mode 0700.
        header: problem and options of the run.

    Attributes:
        run: id of the run, even where nothing can be written.
        path: path of the file; None where it could not be made.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        self.run = run_id(header)
        self.path: Path | None = None
        self._start = time.monotonic()
        self._file = -1
        try:
            self.path, self._file = create(folder, self.run)
            self.run = self.path.stem
            prune(folder)
        except OSError as error:
            self.close()
            if is_news(folder):
                self._warn(fault_line("folder of runs", folder, error))
        named = {"format": FORMAT, "version": VERSION, "run": self.run}
        self._write("start", named | encoded(header))

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; later events are dropped."""
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)

    def stage(self, name: str, seconds: float) -> None:
        """Write that a stage of the run has ended."""
        self._write("stage", {"name": name, "seconds": seconds})

    def ranking(self, verdicts: Sequence[Verdict], default: Config | None = None) -> None:
        """Write the ranking before compiling: the best configs, the default, and the dropped.

        Args:
            verdicts: verdicts of every config of the space; configs with a rank, a score or a
                predicted time are ranked, in that order.
            default: config to write whatever its rank.
        """
        ranked = _ranked(verdicts)
        shown = [row for n, row in enumerate(ranked) if n < MOST_RANKED or row.config == default]
        values = {"count": len(verdicts), "configs": shown, "dropped": _dropped(verdicts)}
        self._write("ranking", values)

    def batch(self, number: int, seconds: float, verdicts: Iterable[Verdict]) -> None:
        """Write a batch of configs that was compiled together."""
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
        """Write configs that were timed together; `best_us` is the best of the run so far."""
        values: dict[str, Any] = {"number": number, "seconds": seconds, "best_us": best_us}
        values |= {"expected_gain": expected_gain, "rows": [_timed(*o) for o in outcomes]}
        self._write("trial", values)

    def final(self, outcomes: Iterable[tuple[Config, Measurement | Failure]]) -> None:
        """Write the last timings of finalists and default, from interleaved rounds."""
        self._write("final", {"rows": [_timed(*outcome) for outcome in outcomes]})

    def note(self, text: str) -> None:
        """Write a note for the reader of the run."""
        self._write("note", {"text": text})

    def end(self, ending: Ending) -> None:
        """Write how the run ended, and close the file."""
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
                # Not buffered: bytes that the system has taken survive a kill of this process.
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self.close()
            self._warn(f"trace {self.path}: {error.strerror or error}")

    def _warn(self, cause: str) -> None:
        warnings.warn(f"{cause}; the run goes on without it", TraceWarning, stacklevel=4)


def _ranked(verdicts: Sequence[Verdict]) -> list[PredictionRow]:
    """Rank predictions, best first; a config without a rank gets its place in this order."""
    predicted = [v for v in verdicts if (v.rank, v.score, v.predicted_us) != (None, None, None)]
    predicted.sort(key=_order)
    return [
        PredictionRow(v.config, v.rank or place, v.score, v.predicted_us, v.dropped_at, _reason(v))
        for place, v in enumerate(predicted, 1)
    ]


def _order(verdict: Verdict) -> tuple[float, ...]:
    score = None if verdict.score is None else -verdict.score
    values = (verdict.rank, score, verdict.predicted_us)
    return tuple(math.inf if value is None else value for value in values)


def _dropped(verdicts: Iterable[Verdict]) -> list[DroppedRow]:
    counts: dict[tuple[str, str], tuple[int, str]] = {}
    for verdict in verdicts:
        if verdict.dropped_at is not None:
            rule = verdict.reasons[0].rule if verdict.reasons else verdict.dropped_at
            key = (verdict.dropped_at, rule)
            count, example = counts.get(key, (0, _reason(verdict) or ""))
            counts[key] = (count + 1, example)
    return [DroppedRow(*key, *value) for key, value in counts.items()]


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
    """Say in one line why a config was dropped; None where it was not."""
    if verdict.dropped_at is None:
        return None
    reasons: Iterator[object] = (part for part in (verdict.failure, *verdict.reasons) if part)
    return " ".join(str(next(reasons, verdict.dropped_at)).split())[:_REASON]


def _timed(config: Config, outcome: Measurement | Failure) -> TimedRow:
    if isinstance(outcome, Failure):
        detail = outcome.detail.strip()[:_REASON]
        return TimedRow(config, Failure(outcome.stage, outcome.kind, detail))
    times = outcome.median_us, outcome.p20_us, outcome.p80_us
    return TimedRow(config, Timing(*times, **outcome.cited(), error=outcome.error))
