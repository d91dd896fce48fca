"""The last runs in short, a JSON line each, oldest first.

The first line says what the file is, `{"format": "asmtune-bench-history", "version": 1}`; the
others have the fields of `HistoryEntry`. The file is replaced whole whenever a run is added.
Runs of `asmtune bench` have times, those of `asmtune accuracy` errors. Version 1 had times alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Final

from asmtune.base.atomic_write import folder_lock
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical
from asmtune.base.json_codec import parse_json
from asmtune.store.trace.reader import decoded, encoded
from asmtune.studies.regression.run import (
    BenchRun,
    BenchSubject,
    Environment,
    check_times,
    of_form,
    read_text,
    write_text,
)

FORMAT: Final = "asmtune-bench-history"
VERSION: Final = 1
MOST_RUNS: Final = 100

LEAST_RUNS: Final = 5
"""Runs from which on a mean and a standard deviation say anything of the next one."""

_DEVIATIONS: Final = 3
_REPAIR: Final = "correct that line, or name another file to begin anew"


@dataclass(frozen=True)
class Level:
    """One number of one subject in one run: a median time of its processes, or an error.

    Attributes:
        value: microseconds, or the metric's.
        low: least of the processes' medians; the value itself for an error.
        high: the largest.
        metric: a field of `AccuracyStats`; None for a time.
    """

    subject: BenchSubject
    value: float
    low: float
    high: float
    metric: str | None = None

    @property
    def identity(self) -> str:
        """Return a text that is equal for equal subjects and metrics."""
        own = self.subject.identity
        return own if self.metric is None else canonical([own, self.metric])


@dataclass(frozen=True)
class HistoryEntry:
    """A run in short: its identity, and a level for each subject."""

    run: str
    date: str
    label: str
    environment: Environment
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class Band:
    """The band in which the next median is expected: mean - 3 sd to mean + 3 sd."""

    least_us: float
    most_us: float


def entry_of(run: BenchRun) -> HistoryEntry:
    """Make a short entry of a run."""
    levels = tuple(
        Level(row.subject, row.median_us, min(row.medians_us), max(row.medians_us))
        for row in run.rows
    )
    return HistoryEntry(run.identity, run.date, run.label, run.environment, levels)


def comparable(history: Sequence[HistoryEntry], run: HistoryEntry) -> list[HistoryEntry]:
    """Filter entries of the same GPU and driver, without the run itself."""
    here = run.environment
    return [
        entry
        for entry in history
        if (entry.environment.gpu, entry.environment.driver) == (here.gpu, here.driver)
        and entry.run != run.run
    ]


def values_of(history: Sequence[HistoryEntry], identity: str) -> list[float]:
    """Return all values of levels of an identity, oldest first."""
    levels = (level for entry in history for level in entry.levels)
    return [level.value for level in levels if level.identity == identity]


def band_of(history: Sequence[HistoryEntry], subject: BenchSubject) -> Band | None:
    """Compute the band of a subject; None if fewer than `LEAST_RUNS` have timed it."""
    times = values_of(history, subject.identity)
    if len(times) < LEAST_RUNS:
        return None
    centre, reach = mean(times), _DEVIATIONS * stdev(times)
    return Band(centre - reach, centre + reach)


def read_history(path: Path) -> tuple[HistoryEntry, ...]:
    """Read a history; empty if there is no such file.

    Raises:
        InputError: it cannot be read, is no history, or of a newer version; names file and line.
    """
    where = f"--history {path}"
    if not path.exists():
        return ()
    lines = read_text(path, where, _REPAIR).splitlines()
    if not lines:
        raise InputError(f"{where}: the file is empty; {_REPAIR}")
    values = []
    for number, line in enumerate(lines, 1):
        try:
            values.append(parse_json(line))
        except ValueError as error:
            raise InputError(f"{where}, line {number}: not JSON ({error}); {_REPAIR}") from error
    of_form(values[0], FORMAT, VERSION, f"{where}, line 1")
    entries = []
    for number, value in enumerate(values[1:], 2):
        entry = decoded(HistoryEntry, value, f"{where}, line {number}")
        timed = (one for one in entry.levels if one.metric is None)
        times = (us for one in timed for us in (one.low, one.value, one.high))
        check_times(times, f"{where}, line {number}, levels", _REPAIR)
        entries.append(entry)
    return tuple(entries)


def extended(history: Sequence[HistoryEntry], run: HistoryEntry) -> tuple[HistoryEntry, ...]:
    """Return a history with one more run at its end: the last hundred, each run once."""
    others = [entry for entry in history if entry.run != run.run]
    return tuple([*others, run][-MOST_RUNS:])


def record(path: Path, run: HistoryEntry) -> None:
    """Add a run to a file; a process that adds another one at the same time waits.

    Raises:
        InputError: the file cannot be read or written, or is no history.
    """
    folder = path.absolute().parent
    try:
        with folder_lock(folder):
            write_history(path, extended(read_history(path), run))
    except OSError as error:
        raise InputError(f"--history: {folder}: {error.strerror or error}; {_REPAIR}") from error


def write_history(path: Path, history: Sequence[HistoryEntry]) -> None:
    """Replace the file.

    Raises:
        InputError: it cannot be written.
    """
    lines = [{"format": FORMAT, "version": VERSION}, *map(encoded, history)]
    write_text(path, "".join(f"{json.dumps(line)}\n" for line in lines))
