"""Reports as the page reads them: a column of values for each axis, verdict part and feature."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from asmtune.core.records.pruned import PruneReport
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.features.catalog import FEATURES
from asmtune.report.explorer.code import CarriedCode
from asmtune.report.explorer.timings import LaunchKey, Timings
from asmtune.report.tables import worth

OWN: Final = frozenset(
    {
        "kept", "dropped_at", "reason", "reasons", "rank", "score", "predicted_us", "bottleneck",
        "measured_us", "ratio", "fate",
    }
)  # fmt: skip
"""Columns that are no axes and no features; an axis of such a name is shown as `axis NAME`."""


def page_model(
    reports: Sequence[PruneReport], code: CarriedCode, timings: Timings | None
) -> dict[str, Any]:
    """Makes the data of the page: `{"features", "sources", "reports": [...]}`."""
    measured = [_measured(report, timings) for report in reports]
    labels = _labels(reports)
    return {
        "features": {f.name: [f.unit, f.group, f.meaning] for f in FEATURES.values()},
        "sources": list(code.sources),
        "reports": [
            _report(report, label, times, timings) | {"code": index, "code_note": code.note}
            for report, label, times, index in zip(
                reports, labels, measured, code.index, strict=True
            )
        ],
    }


def _measured(report: PruneReport, timings: Timings | None) -> Mapping[str, float]:
    if timings is None:
        return {}
    return timings.of(LaunchKey(report.kernel, report.shape, report.dtypes, report.target))


def _labels(reports: Sequence[PruneReport]) -> list[str]:
    names = [report.target for report in reports]
    return [
        name if names.count(name) == 1 else f"{name} " + " ".join(map(str, report.shape.values()))
        for name, report in zip(names, reports, strict=True)
    ]


def _report(
    report: PruneReport, label: str, times: Mapping[str, float], timings: Timings | None
) -> dict[str, Any]:
    axes, columns = _axes(report.verdicts)
    columns |= _verdicts(report.verdicts)
    if times:
        columns["measured_us"] = [times.get(str(v.config)) for v in report.verdicts]
    for name in FEATURES:
        values = [_value(v.features[name]) if v.features else None for v in report.verdicts]
        # A config's own num_warps is not overwritten by the feature of that name.
        if name not in columns and any(value is not None for value in values):
            columns[name] = values
    notes = list(report.notes)
    if times and timings is not None:
        measured_count = sum(value is not None for value in columns["measured_us"])
        notes.append(
            f"measured: {timings.source}, {measured_count} of {len(report.verdicts)} configs"
        )
    return {
        "kernel": report.kernel,
        "target": report.target,
        "label": label,
        "scorer": report.scorer,
        "worth": list(worth(report)),
        "notes": notes,
        "measured": bool(times),
        "kept": len(report.kept),
        "funnel": [
            {"stage": stage, "reason": reason, "configs": count}
            for (stage, reason), count in report.dropped().items()
        ],
        "axes": axes,
        "columns": columns,
        "failures": {
            str(row): v.failure.detail.strip()
            for row, v in enumerate(report.verdicts)
            if v.failure is not None
        },
    }


def _axes(verdicts: Sequence[Verdict]) -> tuple[list[str], dict[str, list[Any]]]:
    configs = [verdict.config.to_dict() for verdict in verdicts]
    names = dict.fromkeys(name for config in configs for name in config)
    columns = {
        f"axis {name}" if name in OWN else name: [_value(config.get(name)) for config in configs]
        for name in names
    }
    return list(columns), columns


def _verdicts(verdicts: Sequence[Verdict]) -> dict[str, list[Any]]:
    return {
        "kept": [int(v.kept) for v in verdicts],
        "dropped_at": [v.dropped_at for v in verdicts],
        "reason": [v.reasons[0].rule if v.reasons else v.dropped_at for v in verdicts],
        "reasons": [" ".join("; ".join(map(str, v.reasons)).split()) for v in verdicts],
        "rank": [v.rank for v in verdicts],
        "score": [_value(v.score) for v in verdicts],
        "predicted_us": [_value(v.predicted_us) for v in verdicts],
        "bottleneck": [v.bottleneck for v in verdicts],
    }


def _value(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() else float(f"{value:.7g}")
    return value if value is None or isinstance(value, int | str) else str(value)
