"""The last runs in short, a JSON line each, oldest first.

The first line says what the file is, `{"format": "asmtune-bench-history", "version": 1}`; the
others have the fields of `HistoryEntry`. The file is replaced whole whenever a run is added.
Runs of `asmtune bench` have times, those of `asmtune accuracy` errors. Runs that were found slower
or worse are kept and drawn, and count for no limit.

A limit by the history is mean + k sd. At 3 sd of 5 runs one unchanged run in 40 is beyond it; k
falls to about 3 as runs come. For a limit of the next run alone it is that of a prediction limit:
the quantile of Student's t of n - 1 degrees of freedom times sqrt(1 + 1 / n)
(https://en.wikipedia.org/wiki/Prediction_interval). A limit that is kept, the stricter of old and
new, needs a tolerance limit: the quantile, at a confidence, of the noncentral t distribution of
n - 1 degrees of freedom and noncentrality z sqrt(n), over sqrt(n), with z the normal quantile
(https://www.itl.nist.gov/div898/handbook/prc/section2/prc263.htm).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import NormalDist, stdev
from typing import Final

from asmtune.base.atomic_write import folder_lock
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical
from asmtune.base.json_codec import parse_json
from asmtune.store.trace.reader import decoded, encoded
from asmtune.workshop.regression.run import (
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

CONFIDENCE: Final = 0.999
"""Share of histories whose kept limits hold what they say: of normal errors of 200 unchanged runs
against six limits at 1%, 0.3 break one in the mean; at 0.99 it is 1.4, and at 3 sd 37."""

_REPAIR: Final = "correct that line, or name another file to begin anew"


def identity_of(subject: BenchSubject, metric: str | None = None) -> str:
    """Return a text that is equal for equal subjects and metrics."""
    return subject.identity if metric is None else canonical([subject.identity, metric])


@dataclass(frozen=True)
class Level:
    """Number of a subject in one run: a median time of its processes, or an error.

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

    @cached_property
    def identity(self) -> str:
        """Return `identity_of` its subject and metric."""
        return identity_of(self.subject, self.metric)


@dataclass(frozen=True)
class HistoryEntry:
    """A run in short: its identity, a level for each subject, and what a check has found it."""

    run: str
    date: str
    label: str
    environment: Environment
    levels: tuple[Level, ...]
    outcome: str | None = None

    @property
    def is_sound(self) -> bool:
        """Return whether later limits may count on it: it was found neither slower nor worse."""
        return self.outcome not in ("slower", "worse")


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


def alike(history: Sequence[HistoryEntry], run: HistoryEntry) -> list[HistoryEntry]:
    """Filter entries that share a subject and metric with a run, without the run itself."""
    own = {level.identity for level in run.levels}
    others = (entry for entry in history if entry.run != run.run)
    return [entry for entry in others if any(level.identity in own for level in entry.levels)]


def sound_values(history: Sequence[HistoryEntry]) -> dict[str, list[float]]:
    """Return the values of sound runs by the identity of their levels, oldest first."""
    values: dict[str, list[float]] = {}
    for level in (level for entry in history if entry.is_sound for level in entry.levels):
        values.setdefault(level.identity, []).append(level.value)
    return values


def reach_of(
    values: Sequence[float], share: float, *, least: float = 0.0, kept: bool = False
) -> float | None:
    """Compute how far an unchanged run may lie above the mean of earlier ones.

    Args:
        values: one a run.
        share: chance of an unchanged run to lie farther.
        least: standard deviation that stands for a smaller one.
        kept: whether the limit holds for all runs to come, not for the next one alone.

    Returns:
        The distance, k sd of the module's formula; None for fewer values than `LEAST_RUNS`.
    """
    runs = len(values)
    if runs < LEAST_RUNS:
        return None
    from scipy import special  # 0.2 s, which only a limit by a history spends

    if kept:
        away = -NormalDist().inv_cdf(share) * math.sqrt(runs)
        k = float(special.nctdtrit(runs - 1, away, CONFIDENCE)) / math.sqrt(runs)
    else:
        k = -float(special.stdtrit(runs - 1, share)) * math.sqrt(1 + 1 / runs)
    return k * max(stdev(values), least)


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
    """Return a history with one more run at its end, each run once.

    Of the runs that share a subject with it the last hundred stay: a file may serve many kernels.
    """
    gone = {run.run, *(entry.run for entry in alike(history, run)[: 1 - MOST_RUNS])}
    return (*(entry for entry in history if entry.run not in gone), run)


def record(path: Path, run: HistoryEntry, outcome: str | None = None) -> None:
    """Add a run to a file with the outcome of its check; processes wait for each other.

    Raises:
        InputError: the file cannot be read or written, or is no history.
    """
    folder = path.absolute().parent
    try:
        with folder_lock(folder):
            write_history(path, extended(read_history(path), replace(run, outcome=outcome)))
    except OSError as error:
        raise InputError(f"--history: {folder}: {error.strerror or error}; {_REPAIR}") from error


def write_history(path: Path, history: Sequence[HistoryEntry]) -> None:
    """Replace the file.

    Raises:
        InputError: it cannot be written.
    """
    lines = [{"format": FORMAT, "version": VERSION}, *map(encoded, history)]
    write_text(path, "".join(f"{json.dumps(line)}\n" for line in lines))
