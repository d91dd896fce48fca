"""Limits of errors that guard a kernel: a file of them, and what a run breaks.

`limits_of` allows half again the errors of a run, for means and quantiles: those of runs on other
random inputs scatter about them. A limit on a maximum is the user's to write.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from asmtune.base.atomic_write import folder_lock
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical
from asmtune.base.json_codec import fields_of
from asmtune.core.dtypes import torch_dtype
from asmtune.measure.accuracy import Bound
from asmtune.store.trace.reader import decoded, encoded
from asmtune.workshop.regression.accuracy_run import AccuracyRow, AccuracyRun
from asmtune.workshop.regression.compare import Check
from asmtune.workshop.regression.run import BenchSubject, of_form, read_document, write_text

FORMAT: Final = "asmtune-accuracy-thresholds"
VERSION: Final = 1

GUARDED: Final = ("mean_rel", "p90", "p99", "p999", "rms_share", "clip")
"""Metrics that limits are written for."""

MARGIN: Final = 1.5
"""Written limits over a run's errors. Among 200 runs of 4,096 numbers, with outliers or without,
no error was 1.25 times that of the first run (benchmarks/results/accuracy.json)."""

_FEW: Final = 10
"""Elements that may be clipped beside the margin, and least number beyond a quantile."""

_TAIL: Final = {"p90": 0.9, "p99": 0.99, "p999": 0.999}
_REPAIR: Final = "give a file that --write-limits has written, or name another"
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
        verdict: "worse", "unchanged", or "gone" where the run has no such row.
        value: of this run; None if it is gone.
        limit: what it must not exceed.
        remark: advice, if the verdict is "worse".
    """

    subject: BenchSubject
    metric: str
    verdict: str
    value: float | None
    limit: float
    remark: str = ""

    @property
    def ratio(self) -> float | None:
        """Return the value over its limit."""
        return None if self.value is None or not self.limit else self.value / self.limit


@dataclass(frozen=True)
class GuardTerms:
    """The terms of a guard."""

    words: str = "limits of the file"


def read_limits(path: Path) -> tuple[ErrorLimits, ...]:
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
            raise InputError(f"{where}: {name} is there {count} times; {_REPAIR}")
    return limits


def write_limits(path: Path, limits: Sequence[ErrorLimits]) -> None:
    """Put limits into a file, or begin it; those of other rows stay.

    It appears whole or stays as it was. Another process that writes at the same time waits.

    Raises:
        InputError: it cannot be read or written.
    """
    try:
        with folder_lock(path.absolute().parent):
            before = read_limits(path) if path.exists() else ()
            merged = {limit.subject.identity: limit for limit in (*before, *limits)}
            rows = ",\n".join(f"  {json.dumps(encoded(limit))}" for limit in merged.values())
            head = f'"format": {json.dumps(FORMAT)},\n "version": {VERSION}'
            write_text(path, f'{{{head},\n "limits": [\n{rows}\n ]}}\n')
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; name another file") from error


def limits_of(run: AccuracyRun) -> tuple[ErrorLimits, ...]:
    """Return limits that allow `MARGIN` times the errors of a run.

    Errors that are 0 may become a rounding of the dtype. Quantiles beyond which are few elements
    have no limit.
    """
    limits = []
    for row in run.rows:
        bounds = {metric: _limit(metric, row) for metric in GUARDED if _is_steady(metric, row)}
        if bounds:
            limits.append(ErrorLimits(run.subject(row), Bound(**bounds)))  # type: ignore[arg-type]
    return tuple(limits)


def _limit(metric: str, row: AccuracyRow) -> float:
    value = MARGIN * float(getattr(row.stats, metric))
    if metric == "clip":
        return min(1.0, value + _FEW / row.stats.elements)
    return value or _rounding(row.dtype)


def _rounding(dtype: str) -> float:
    import torch

    kind = torch_dtype(dtype)
    return torch.finfo(kind).eps / 2 if kind.is_floating_point else 0.0


def _is_steady(metric: str, row: AccuracyRow) -> bool:
    """Return whether enough elements are beyond a quantile."""
    return row.stats.elements * (1 - _TAIL.get(metric, 0.0)) >= _FEW


def judge(run: AccuracyRun, limits: Sequence[ErrorLimits]) -> Check[ErrorFinding]:
    """Judge a run; NaN and infinities that the reference lacks are always worse.

    Limits of other kernels, shapes, dtypes and references do not count; a variant that is
    missing from an equal run, such as under a new name, is "gone".
    """
    bounds = {limit.subject.identity: limit.bound for limit in limits}
    findings = [
        finding
        for row in run.rows
        for finding in _findings(run, row, bounds.get(run.subject(row).identity, Bound()))
    ]
    notes = []
    for limit in _lacking(run, limits):
        findings += [
            ErrorFinding(limit.subject, metric, "gone", None, most)
            for metric, most in limit.bound.limits.items()
            if getattr(limit.bound, metric) is not None
        ]
        notes.append(
            f"limits of {limit.subject.variant} ({limit.subject.dtype}) were not judged: this "
            "run has no such variant; name it as before, or take its limits out of the file"
        )
    return Check(GuardTerms(), "limits", run.date, tuple(findings), (), tuple(notes))


def _findings(run: AccuracyRun, row: AccuracyRow, bound: Bound) -> Iterator[ErrorFinding]:
    limits, broken = bound.limits, bound.broken(row.stats)
    if bound.nonfinite is None and "nonfinite" not in broken:
        del limits["nonfinite"]
    for metric, limit in limits.items():
        worse, value = metric in broken, float(getattr(row.stats, metric))
        remark = advice(metric, row, bound) if worse else ""
        verdict = "worse" if worse else "unchanged"
        yield ErrorFinding(run.subject(row), metric, verdict, value, float(limit), remark)


def _lacking(run: AccuracyRun, limits: Sequence[ErrorLimits]) -> Iterator[ErrorLimits]:
    """Yield the limits of a run like this one whose variant it lacks."""
    own = {run.subject(row).identity for row in run.rows}
    dtypes = {row.dtype for row in run.rows}
    about = canonical([run.kernel, dict(run.shape)])
    for limit in limits:
        subject = limit.subject
        if subject.identity in own or subject.dtype not in dtypes:
            continue
        alike = canonical([subject.kernel, dict(subject.shape)]) == about
        if alike and str(subject.variant).endswith(run.terms):
            yield limit


def advice(metric: str, row: AccuracyRow, bound: Bound) -> str:
    """Say what a broken limit points to, and what to try."""
    if metric == "nonfinite":
        return "NaN or infinity where the reference has a number: a mask, an overflow, a zero scale"
    tips = []
    if metric == "clip":
        tips.append("values are clipped: smaller groups, or more margin in the scale")
    if metric in ("p99", "p999", "max_rel", "max_abs") and bound.mean_rel:
        tail = getattr(row.stats, metric) / (getattr(bound, metric) or 1.0)
        mean = row.stats.mean_rel / bound.mean_rel
        if tail > _FASTER * mean:
            tips.append(
                f"the tail is {tail:.1f} times its limit, the mean {mean:.1f} times: look at the "
                "scales of a few channels"
            )
    return "; ".join(tips)
