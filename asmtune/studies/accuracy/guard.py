"""Limits of errors that guard a kernel: a file of them, a history, and what a run breaks.

A limit by the history is a one-sided tolerance limit for a normal distribution, mean + k sd: with
99.9% confidence, all but a stated share of the runs to come stay below it. With z, the normal
quantile of that share, k is the quantile of the noncentral t distribution at the confidence, n - 1
degrees of freedom and noncentrality z sqrt(n), over sqrt(n) (NIST/SEMATECH e-Handbook of
Statistical Methods, 7.2.6.3, https://www.itl.nist.gov/div898/handbook/prc/section2/prc263.htm).
Mean + 3 sd of 5 runs would be passed by one unchanged run in 40, and since the stricter limit is
kept, by more and more of them: by 75 of 200 on heavy-tailed inputs, where these limits stop none.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final

from asmtune.base.errors import InputError
from asmtune.measure.accuracy import AccuracyStats, Bound
from asmtune.store.trace.reader import decoded, encoded
from asmtune.studies.accuracy.run import GUARDED, AccuracyRow, AccuracyRun
from asmtune.studies.regression.compare import Check
from asmtune.studies.regression.history import (
    LEAST_RUNS,
    HistoryEntry,
    Level,
    comparable,
    values_of,
)
from asmtune.studies.regression.run import (
    BenchSubject,
    of_form,
    read_document,
    write_text,
)

FORMAT: Final = "asmtune-accuracy-thresholds"
VERSION: Final = 1

_CONFIDENCE: Final = 0.999
_TAIL: Final = {"p90": 0.9, "p99": 0.99, "p999": 0.999}
_BEYOND: Final = 10
"""Elements beyond a quantile from which on it is no extreme of its sample."""

_RESOLUTION: Final = 2e-3  # of quantiles, relatively
_REPAIR: Final = "give a file that --write-adaptive-thresholds has written, or name another"
_UNEVEN: Final = 8.0
"""Largest scale over the mean, from which on most channels lose 3 bits of range to a few."""

_FASTER: Final = 3.0


@dataclass(frozen=True)
class ErrorLimits:
    """The limits of one row."""

    subject: BenchSubject
    bound: Bound


@dataclass(frozen=True)
class GuardTerms:
    """The level of a guard: the chance that an unchanged kernel breaks a limit of the history."""

    level: float = 0.01

    @property
    def words(self) -> str:
        """Format as `level 1%`."""
        return f"level {100 * self.level:.3g}%"


@dataclass(frozen=True)
class ErrorFinding:
    """The verdict on one metric of one row.

    Attributes:
        verdict: "worse", "unchanged", or "new" without a limit.
        value: of this run.
        limit: what it must not exceed; None without.
        usual: mean of the history; None without.
        remark: advice, if the verdict is "worse".
    """

    subject: BenchSubject
    metric: str
    verdict: str
    value: float
    limit: float | None
    usual: float | None
    remark: str = ""

    @property
    def ratio(self) -> float | None:
        """Return the value over the usual one."""
        return self.value / self.usual if self.usual else None

    @property
    def identity(self) -> str:
        """Return the identity of the level that it judges."""
        return Level(self.subject, 0.0, 0.0, 0.0, self.metric).identity


def read_thresholds(path: Path) -> tuple[ErrorLimits, ...]:
    """Read a file of limits.

    Raises:
        InputError: it cannot be read, is of another format or a newer version, or a field is
            wrong; names file and field.
    """
    where = f"--check {path}"
    document = of_form(read_document(path, where, _REPAIR), FORMAT, VERSION, where, _REPAIR)
    try:
        limits = decoded(tuple[ErrorLimits, ...], document.get("limits"), "limits")
    except InputError as error:
        raise InputError(f"{where}: {error}; {_REPAIR}") from error
    for place, limit in enumerate(document["limits"]):
        known = {one.name for one in fields(Bound)}
        for name in limit["bound"]:
            if name not in known:
                raise InputError(f"{where}, limits[{place}], bound: unknown limit {name!r}")
    often = Counter(limit.subject.identity for limit in limits)
    for name, count in often.items():
        if count > 1:
            raise InputError(f"{where}: {name} stands there {count} times; {_REPAIR}")
    return limits


def write_thresholds(path: Path, limits: Sequence[ErrorLimits]) -> None:
    """Write a file of limits; it appears whole or stays as it was.

    Raises:
        InputError: it cannot be written.
    """
    rows = ",\n".join(f"  {json.dumps(encoded(limit))}" for limit in limits)
    head = f'"format": {json.dumps(FORMAT)},\n "version": {VERSION}'
    write_text(path, f'{{{head},\n "limits": [\n{rows}\n ]}}\n')


@cache
def tolerance_factor(runs: int, share: float) -> float:
    """Return k of the module's formula: all but `share` of runs stay below mean + k sd."""
    from scipy.stats import nct, norm  # 0.6 s, which only a guard with a history spends

    away = float(norm.isf(share)) * math.sqrt(runs)
    return float(nct.ppf(_CONFIDENCE, runs - 1, away)) / math.sqrt(runs)


def limit_of(values: Sequence[float], elements: int, share: float, metric: str) -> float | None:
    """Compute a limit of a metric's earlier values; None if they are too few.

    Where a metric hardly scatters, its resolution stands for the standard deviation; for `clip`
    that of a binomial share.

    Args:
        values: one a run.
        elements: of the output.
        share: of unchanged runs that may exceed the limit.
        metric: its name.
    """
    if len(values) < LEAST_RUNS:
        return None
    centre, spread = mean(values), max(stdev(values), _RESOLUTION * mean(values))
    if metric == "clip":
        spread = max(spread, math.sqrt((centre + 1 / len(values) / elements) / elements))
    return centre + tolerance_factor(len(values), share) * spread


def adaptive(
    run: AccuracyRun, known: Sequence[HistoryEntry], level: float
) -> tuple[ErrorLimits, ...]:
    """Compute limits of a run's rows by the history: all together hold the level (Bonferroni)."""
    share = level / (len(GUARDED) * len(run.rows))
    limits = []
    for row in run.rows:
        subject, bounds = run.subject(row), {}
        for metric in GUARDED:
            enough = row.stats.elements * (1 - _TAIL.get(metric, 0.0)) >= _BEYOND
            identity = Level(subject, 0.0, 0.0, 0.0, metric).identity
            values = values_of(known, identity) if enough else []
            bounds[metric] = limit_of(values, row.stats.elements, share, metric)
        if any(limit is not None for limit in bounds.values()):
            limits.append(ErrorLimits(subject, Bound(**bounds)))  # type: ignore[arg-type]
    return tuple(limits)


def stricter(old: Sequence[ErrorLimits], new: Sequence[ErrorLimits]) -> tuple[ErrorLimits, ...]:
    """Merge limits: of each metric the smaller one, of `cosine` the larger."""
    merged = {limit.subject.identity: limit for limit in old}
    for limit in new:
        before = merged.get(limit.subject.identity, ErrorLimits(limit.subject, Bound()))
        values: dict[str, Any] = {}
        for name, value in asdict(limit.bound).items():
            pair = [one for one in (getattr(before.bound, name), value) if one is not None]
            values[name] = (max if name == "cosine" else min)(pair) if pair else None
        merged[limit.subject.identity] = ErrorLimits(limit.subject, Bound(**values))
    return tuple(merged.values())


@dataclass(frozen=True)
class Guard:
    """A file of limits with a history.

    Attributes:
        limits: of the file.
        history: earlier runs, oldest first; those of another environment do not count.
        adapts: whether limits by the history hold beside those of the file.
    """

    terms: GuardTerms
    limits: tuple[ErrorLimits, ...]
    history: tuple[HistoryEntry, ...] = ()
    adapts: bool = False

    def judge(self, run: AccuracyRun) -> Check[ErrorFinding]:
        """Judge a run; NaN and infinities that the reference lacks are always worse."""
        known = comparable(self.history, run.entry)
        limits = {limit.subject.identity: limit.bound for limit in self._limits(run, known)}
        findings = [
            finding
            for row in run.rows
            for finding in _findings(run, row, limits.get(run.subject(row).identity), known)
        ]
        notes = []
        if self.adapts and len(known) < LEAST_RUNS:
            notes.append(
                f"{len(known)} comparable runs in the history, and {LEAST_RUNS} are needed for "
                "limits by it"
            )
        base = f"limits and {len(known)} runs"
        return Check(self.terms, base, run.name, tuple(findings), (), tuple(notes))

    def tightened(self, run: AccuracyRun) -> tuple[ErrorLimits, ...]:
        """Return the limits to write after a run that is fine, with it in the history."""
        known = [*comparable(self.history, run.entry), run.entry]
        return stricter(self.limits, adaptive(run, known, self.terms.level))

    def _limits(self, run: AccuracyRun, known: Sequence[HistoryEntry]) -> tuple[ErrorLimits, ...]:
        if not self.adapts:
            return self.limits
        return stricter(self.limits, adaptive(run, known, self.terms.level))


def _findings(
    run: AccuracyRun, row: AccuracyRow, bound: Bound | None, known: Sequence[HistoryEntry]
) -> Iterator[ErrorFinding]:
    subject, limits = run.subject(row), asdict(bound or Bound())
    limits["nonfinite"] = limits["nonfinite"] or 0
    broken = _broken(bound or Bound(), row.stats)
    usual = {
        metric: mean(values) if values else None
        for metric in GUARDED
        for values in [values_of(known, Level(subject, 0.0, 0.0, 0.0, metric).identity)]
    }
    for metric, limit in limits.items():
        value = getattr(row.stats, metric)
        is_shown = limit is not None or metric in GUARDED
        if value is None and limit is not None:
            raise InputError(f"--check: {metric} has a limit and was not measured: give --kl")
        if not is_shown or (metric == "nonfinite" and metric not in broken):
            continue
        verdict = "new" if limit is None else "worse" if metric in broken else "unchanged"
        remark = advice(metric, row, usual) if verdict == "worse" else ""
        yield ErrorFinding(subject, metric, verdict, float(value), limit, usual.get(metric), remark)


def _broken(bound: Bound, stats: AccuracyStats) -> set[str]:
    return {text.split()[0] for text in bound.violations(stats)}


def advice(metric: str, row: AccuracyRow, usual: dict[str, float | None]) -> str:
    """Say what a broken limit points to, and what to try."""
    if metric == "nonfinite":
        return "NaN or infinity where the reference has a number: a mask, an overflow, a zero scale"
    tips = []
    if metric == "clip":
        tips.append("values are clipped: smaller groups, or more margin in the scale")
    growth = [
        getattr(row.stats, name) / before if (before := usual.get(name)) else None
        for name in (metric, "mean_rel")
    ]
    tail = metric in ("p99", "p999", "max_rel", "max_abs")
    if tail and growth[0] and growth[1] and growth[0] > _FASTER * growth[1]:
        tips.append(
            f"the tail grew {growth[0]:.1f} times, the mean {growth[1]:.1f} times: look at the "
            "scales of a few channels"
        )
    if row.scales is not None and row.scales.most > _UNEVEN * row.scales.mean:
        ratio = row.scales.most / row.scales.mean
        tips.append(f"the largest scale is {ratio:.0f} times the mean: scales per channel")
    return "; ".join(tips)
