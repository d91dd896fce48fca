"""Limits of errors that guard a kernel: a file of them, a history, and what a run breaks.

Limits by the history are tolerance limits (`history`), of which the stricter one
is kept. Together they hold the level: the chance that an unchanged kernel breaks any.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import mean
from typing import Any, Final

from asmtune.base.atomic_write import folder_lock
from asmtune.base.errors import InputError
from asmtune.base.json_codec import fields_of
from asmtune.core.dtypes import torch_dtype
from asmtune.measure.accuracy import Bound
from asmtune.store.trace.reader import decoded, encoded
from asmtune.workshop.regression.accuracy_run import GUARDED, AccuracyRow, AccuracyRun
from asmtune.workshop.regression.compare import Check
from asmtune.workshop.regression.history import (
    LEAST_RUNS,
    HistoryEntry,
    comparable,
    identity_of,
    reach_of,
    sound_values,
)
from asmtune.workshop.regression.run import BenchSubject, of_form, read_document, write_text

FORMAT: Final = "asmtune-accuracy-thresholds"
VERSION: Final = 1

_BEYOND: Final = 10
"""Elements beyond a quantile from which on it is no extreme of its sample."""

_TAIL: Final = {"p90": 0.9, "p99": 0.99, "p999": 0.999}
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
class ErrorFinding:
    """The verdict on one metric of one row.

    Attributes:
        verdict: "worse", "unchanged", "new" without a limit, or "gone" where the run has no such
            row.
        value: of this run; None if it is gone.
        limit: what it must not exceed; None without.
        earlier: values of earlier runs that broke no limit, oldest first.
        remark: advice, if the verdict is "worse".
    """

    subject: BenchSubject
    metric: str
    verdict: str
    value: float | None
    limit: float | None
    earlier: tuple[float, ...]
    remark: str = ""

    @property
    def identity(self) -> str:
        """Return the identity of its level in a history."""
        return identity_of(self.subject, self.metric)

    @property
    def usual(self) -> float | None:
        """Return the mean of the earlier values."""
        return mean(self.earlier) if self.earlier else None

    @property
    def ratio(self) -> float | None:
        """Return the value over the usual one."""
        return self.value / self.usual if self.usual and self.value is not None else None


@dataclass(frozen=True)
class GuardTerms:
    """The level of a guard, and whether limits by the history hold."""

    level: float
    adapts: bool

    @property
    def words(self) -> str:
        """Format as `limits of the file and the history, level 1%`."""
        by_history = f" and the history, level {100 * self.level:.3g}%" if self.adapts else ""
        return f"limits of the file{by_history}"


def read_thresholds(path: Path) -> tuple[ErrorLimits, ...]:
    """Read a file of limits.

    Raises:
        InputError: it cannot be read, is of another format or a newer version, or a field is
            wrong or unknown; names file and field.
    """
    where = f"--check {path}"
    document = of_form(read_document(path, where, _REPAIR), FORMAT, VERSION, where, _REPAIR)
    try:
        limits = decoded(tuple[ErrorLimits, ...], document.get("limits"), "limits")
        for place, row in enumerate(document["limits"]):
            fields_of(row, f"limits[{place}]", ("subject", "bound"))
            fields_of(row["bound"], f"limits[{place}], bound", (), [f.name for f in fields(Bound)])
    except InputError as error:
        raise InputError(f"{where}: {error}; {_REPAIR}") from error
    for name, count in Counter(limit.subject.identity for limit in limits).items():
        if count > 1:
            raise InputError(f"{where}: {name} stands there {count} times; {_REPAIR}")
    return limits


def write_thresholds(path: Path, limits: Sequence[ErrorLimits]) -> None:
    """Tighten a file of limits, or begin it; it appears whole or stays as it was.

    Another process that tightens it at the same time waits, and neither loses a limit.

    Raises:
        InputError: it cannot be read or written.
    """
    try:
        with folder_lock(path.absolute().parent):
            merged = stricter(read_thresholds(path) if path.exists() else (), limits)
            rows = ",\n".join(f"  {json.dumps(encoded(limit))}" for limit in merged)
            head = f'"format": {json.dumps(FORMAT)},\n "version": {VERSION}'
            write_text(path, f'{{{head},\n "limits": [\n{rows}\n ]}}\n')
    except OSError as error:
        raise InputError(f"--check {path}: {error.strerror or error}; name another file") from error


def stricter(old: Sequence[ErrorLimits], new: Sequence[ErrorLimits]) -> tuple[ErrorLimits, ...]:
    """Merge limits: of each metric the smaller one, of `cosine` the larger."""
    merged = {limit.subject.identity: limit for limit in old}
    for limit in new:
        before = merged.get(limit.subject.identity, limit).bound
        values: dict[str, Any] = {}
        for name in (one.name for one in fields(Bound)):
            pair = [getattr(bound, name) for bound in (before, limit.bound)]
            known = [value for value in pair if value is not None]
            values[name] = (max if name == "cosine" else min)(known) if known else None
        merged[limit.subject.identity] = ErrorLimits(limit.subject, Bound(**values))
    return tuple(merged.values())


def limit_of(values: Sequence[float], row: AccuracyRow, share: float, metric: str) -> float | None:
    """Compute a limit of a metric's earlier values, one a run; None if they are too few.

    Where a metric hardly scatters, its resolution stands for the standard deviation, and that of a
    binomial share for `clip`. Errors that were 0 in a run may jump to a rounding of the dtype.

    Args:
        values: of earlier runs.
        row: this run's.
        share: of unchanged runs that may exceed the limit.
        metric: its name.
    """
    if len(values) < LEAST_RUNS:
        return None
    centre, elements = mean(values), row.stats.elements
    least = _RESOLUTION * centre
    if metric == "clip":
        least = max(least, math.sqrt((centre + 1 / len(values) / elements) / elements))
    limit = centre + (reach_of(values, share, least=least, kept=True) or 0.0)
    return limit if metric == "clip" or min(values) > 0 else max(limit, _rounding(row.dtype))


def _rounding(dtype: str) -> float:
    import torch

    kind = torch_dtype(dtype)
    return torch.finfo(kind).eps / 2 if kind.is_floating_point else 0.0


def _is_steady(metric: str, row: AccuracyRow) -> bool:
    """Return whether enough elements are beyond a quantile."""
    return row.stats.elements * (1 - _TAIL.get(metric, 0.0)) >= _BEYOND


@dataclass(frozen=True)
class Guard:
    """A file of limits with a history.

    Attributes:
        limits: of the file.
        history: earlier runs, oldest first; those of another environment do not count.
        adapts: whether limits by the history hold beside those of the file.
        level: the chance that an unchanged kernel breaks a limit of the history.
    """

    limits: tuple[ErrorLimits, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    adapts: bool = False
    level: float = 0.01

    def judge(self, run: AccuracyRun) -> Check[ErrorFinding]:
        """Judge a run; NaN and infinities that the reference lacks are always worse.

        Limits of other kernels, shapes, dtypes, inputs and references do not count; a variant that
        is missing from an equal run, such as under a new name, is "gone".
        """
        values = sound_values(comparable(self.history, run.entry))
        limits = self.limits
        if self.adapts:
            limits = stricter(limits, self._adaptive(run, values))
        bounds = {limit.subject.identity: limit.bound for limit in limits}
        findings: list[ErrorFinding] = []
        runs = 0
        for row in run.rows:
            bound = bounds.get(run.subject(row).identity, Bound())
            findings += _findings(run, row, bound, values)
            runs = max(runs, *(len(one.earlier) for one in findings), 0)
        notes = []
        for limit in _lacking(run, limits):
            findings += [
                ErrorFinding(limit.subject, metric, "gone", None, most, ())
                for metric, most in limit.bound.limits.items()
                if getattr(limit.bound, metric) is not None
            ]
            notes.append(
                f"limits of {limit.subject.variant} ({limit.subject.dtype}) were not judged: this "
                "run has no such variant; name it as before, or take its limits out of the file"
            )
        if self.adapts and runs < LEAST_RUNS:
            notes.append(
                f"{runs} comparable runs in the history, and {LEAST_RUNS} are needed for limits "
                "by it"
            )
        terms, base = GuardTerms(self.level, self.adapts), f"limits and {runs} runs"
        return Check(terms, base, run.name, tuple(findings), (), tuple(notes))

    def tightened(self, run: AccuracyRun) -> tuple[ErrorLimits, ...]:
        """Return the limits to write after a run that is fine, with it in the history."""
        values = sound_values([*comparable(self.history, run.entry), run.entry])
        return stricter(self.limits, self._adaptive(run, values))

    def _adaptive(
        self, run: AccuracyRun, values: Mapping[str, Sequence[float]]
    ) -> tuple[ErrorLimits, ...]:
        """Compute limits of a run's rows by the history: all together hold the level."""
        share = self.level / (len(GUARDED) * len(run.rows))  # Bonferroni
        limits = []
        for row in run.rows:
            subject, bounds = run.subject(row), {}
            for metric in (metric for metric in GUARDED if _is_steady(metric, row)):
                earlier = values.get(identity_of(subject, metric), ())
                bounds[metric] = limit_of(earlier, row, share, metric)
            if any(limit is not None for limit in bounds.values()):
                limits.append(ErrorLimits(subject, Bound(**bounds)))  # type: ignore[arg-type]
        return tuple(limits)


def _findings(
    run: AccuracyRun, row: AccuracyRow, bound: Bound, values: Mapping[str, Sequence[float]]
) -> Iterator[ErrorFinding]:
    """Judge what has a limit, and list the metrics of the history that have none yet."""
    subject, limits, broken = run.subject(row), bound.limits, bound.broken(row.stats)
    if bound.nonfinite is None and "nonfinite" not in broken:
        del limits["nonfinite"]
    shown = [metric for metric in GUARDED if metric in limits or _is_steady(metric, row)]
    earlier = {m: tuple(values.get(identity_of(subject, m), ())) for m in (*shown, *limits)}
    for metric, before in earlier.items():
        verdict = "new" if metric not in limits else "worse" if metric in broken else "unchanged"
        value, limit = float(getattr(row.stats, metric)), limits.get(metric)
        remark = advice(metric, row, earlier) if verdict == "worse" else ""
        yield ErrorFinding(subject, metric, verdict, value, limit, before, remark)


def _lacking(run: AccuracyRun, limits: Sequence[ErrorLimits]) -> Iterator[ErrorLimits]:
    """Yield the limits of a run like this one whose variant it lacks."""
    own = {run.subject(row).identity for row in run.rows}
    dtypes = {row.dtype for row in run.rows}
    for limit in limits:
        subject = limit.subject
        if subject.identity in own or subject.dtype not in dtypes:
            continue
        alike = BenchSubject(run.kernel, run.shape, subject.dtype, subject.variant)
        if alike.identity == subject.identity and str(subject.variant).endswith(run.terms):
            yield limit


def advice(metric: str, row: AccuracyRow, earlier: Mapping[str, Sequence[float]]) -> str:
    """Say what a broken limit points to, and what to try."""
    if metric == "nonfinite":
        return "NaN or infinity where the reference has a number: a mask, an overflow, a zero scale"
    tips = []
    if metric == "clip":
        tips.append("values are clipped: smaller groups, or more margin in the scale")
    if metric in ("p99", "p999", "max_rel", "max_abs") and earlier.get(metric):
        before = [mean(earlier.get(name) or (0.0,)) for name in (metric, "mean_rel")]
        pair = zip((getattr(row.stats, metric), row.stats.mean_rel), before, strict=True)
        tail, usual = (now / was if was else math.inf for now, was in pair)
        if tail > _FASTER * usual:
            tips.append(
                f"the tail grew {tail:.1f} times, the mean {usual:.1f} times: look at the scales "
                "of a few channels"
            )
    if row.scales is not None and row.scales.most > _UNEVEN * row.scales.mean:
        ratio = row.scales.most / row.scales.mean
        tips.append(f"the largest scale is {ratio:.0f} times the mean: scales per channel")
    return "; ".join(tips)
