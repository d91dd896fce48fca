"""A roofline as JSON: every number of the figure with its unit and where it comes from."""

from __future__ import annotations

from typing import Any, Final

from asmtune.report.documents import document_text
from asmtune.store.trace.json_codec import encoded
from asmtune.studies.roofline.points import Chart, ChartEntry, Point

FORMAT: Final = "asmtune-roofline"


def chart_json(chart: Chart) -> str:
    """`{"format", "version", "target", "roofs", "entries", "failures", "versions", "date"}`."""
    return document_text(
        FORMAT,
        {
            "target": chart.target,
            "roofs": [
                {
                    "name": roof.name,
                    "kind": roof.kind,
                    "flops_per_s" if roof.kind == "compute" else "bytes_per_s": roof.rate,
                    "source": roof.source,
                    "figure": roof.figure,
                }
                for roof in chart.roofs
            ],
            "entries": [_entry(chart, entry) for entry in chart.entries],
            "failures": [{"launch": name, "error": why} for name, why in chart.failures],
            "versions": dict(chart.versions),
            "date": chart.date,
        },
    )


def _entry(chart: Chart, entry: ChartEntry) -> dict[str, Any]:
    return {
        "kernel": entry.kernel,
        "shape": encoded(entry.shape),
        "dtypes": dict(entry.dtypes),
        "tuned_by": entry.tuned_by,
        "tuned_with": dict(entry.made),
        "speedup": None if entry.speedup is None else round(entry.speedup, 4),
        "speedup_is": "measured" if entry.measured else "predicted",
        "before": None if entry.before is None else _point(chart, entry.before),
        "after": _point(chart, entry.after),
        "notes": list(entry.notes),
    }


def _point(chart: Chart, point: Point) -> dict[str, Any]:
    work = point.work
    return {
        "config": point.config.to_dict(),
        "us": round(point.us, 4),
        "time_is": point.how,
        "time_from": point.source,
        "predicted_us": point.predicted_us,
        "predicted_bottleneck": point.bottleneck,
        "cores": point.counts.unit,
        "flops": work.flops,
        "bytes": work.bytes,
        "flops_per_byte": work.intensity,
        "of_this_config": {
            "tensor_flops": point.counts.tensor_flops,
            "vector_flops": point.counts.vector_flops,
            "bytes": point.counts.bytes,
        },
        "flops_per_s": point.flops_per_s,
        "bytes_per_s": point.bytes_per_s,
        "under": chart.limit(point),
        "share_of_roof": round(chart.share(point), 4),
    }
