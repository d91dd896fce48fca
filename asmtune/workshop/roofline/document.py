"""A roofline as table and as JSON: every number with its unit and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Group
from rich.text import Text

from asmtune.predict.work_counts import VECTOR
from asmtune.report.cells import ReportTable, dtype_words, number, one_line, plain_table, words
from asmtune.report.documents import document_text
from asmtune.store.trace.reader import encoded
from asmtune.workshop.roofline.chart import Chart, ChartEntry, Point, Roof

FORMAT: Final = "asmtune-roofline"


def chart_json(chart: Chart) -> str:
    """Write `{"format", "version", "target", "roofs", "entries", "failures", ...}`."""
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


def labels(entries: Sequence[ChartEntry]) -> list[str]:
    """Label each launch by kernel, by the sizes that differ, and by its speed-up."""
    return [_label(entry, [e for e in entries if e.kernel == entry.kernel]) for entry in entries]


def _label(entry: ChartEntry, alike: Sequence[ChartEntry]) -> str:
    differs: Mapping[str, Any] = {
        name: value
        for name, value in entry.shape.items()
        if any(other.shape.get(name) != value for other in alike)
    }
    faster = f"{entry.speedup:.2f}x" if entry.moved and entry.speedup is not None else ""
    about = "" if entry.measured or not faster else "~"
    guess = "?" if entry.after.counts.assumed else ""
    return " ".join(filter(None, (entry.kernel + guess, words(differs), about + faster)))


def summary(chart: Chart) -> str:
    """Summarise a chart in a line: number of launches, and caveats."""
    parts = [f"{len(chart.entries)} launches" if len(chart.entries) != 1 else "1 launch"]
    if any(entry.moved and not entry.measured for entry in chart.entries):
        parts.append("~: by a prediction")
    if any(not entry.after.work.flops for entry in chart.entries):
        parts.append("those without FLOPs are in the table alone")
    if any(entry.after.counts.assumed for entry in chart.entries):
        parts.append("?: counts rest on a guess")
    return "; ".join(parts)


def compute_roofs(roofs: Sequence[Roof]) -> dict[float, tuple[str, ...]]:
    """Group the cores by their rate: types of one rate are one line."""
    names: dict[float, tuple[str, ...]] = {}
    for roof in roofs:
        if roof.kind == "compute":
            names[roof.rate] = (*names.get(roof.rate, ()), roof.name)
    return names


def compute_name(names: Sequence[str], rate: float) -> str:
    """Name a line of the cores: `990 TFLOP/s fp16, bf16 tensor`."""
    tensor = [name for name in names if name != VECTOR]
    cores = [f"{', '.join(tensor)} tensor"] if tensor else []
    cores += [f"{VECTOR} cores"] if VECTOR in names else []
    return f"{rate / 1e12:.3g} TFLOP/s {', '.join(cores)}"


_HEADINGS: Final = (
    *("kernel", "shape", "dtypes", "", "time is", "roof"),
    *("us", "GFLOP", "MB", "FLOP/B", "TFLOP/s", "TB/s", "of roof", "speed-up"),
)
_WORDS: Final = 6
_SPARE: Final = ("MB", "GFLOP", "FLOP/B", "TB/s", "TFLOP/s", "dtypes", "roof")

_HOW: Final = (
    "before: the space's default config; after: the tuned one, or the model's first pick. "
    "roof: what the machine allows at the launch's FLOPs a byte; of roof: how much of that is "
    "reached. A predicted time beside a measured one is scaled by the other's error."
)


def chart_table(chart: Chart) -> Group:
    """Tabulate launches before and after tuning, then the machine's roofs and notes."""
    table = plain_table(f"Roofline of {chart.target}", _HEADINGS, left=_WORDS, spare=_SPARE)
    for entry in chart.entries:
        _add(table, chart, entry)
    roofs = [
        Text(f"{roof.label}: {roof.figure}, {one_line(roof.source)}", "dim") for roof in chart.roofs
    ]
    notes = [
        Text(f"{one_line(entry.kernel)} {words(entry.shape)}: {one_line(note)}", "yellow")
        for entry in chart.entries
        for note in entry.notes
    ]
    failed = [Text(f"{one_line(name)}: {one_line(why)}", "red") for name, why in chart.failures]
    return Group(table, Text(_HOW, "dim"), *roofs, *notes, *failed)


def _add(table: ReportTable, chart: Chart, entry: ChartEntry) -> None:
    name = (one_line(entry.kernel), words(entry.shape), dtype_words(entry.dtypes))
    if entry.before is not None and entry.moved:
        table.add_row(*name, "before", *_cells(chart, entry.before), "")
        name = ("", "", "")
    when = "after" if entry.moved or entry.before is None else "both"
    table.add_row(*name, when, *_cells(chart, entry.after), number(entry.speedup, 2))


def _cells(chart: Chart, point: Point) -> tuple[str, ...]:
    work = point.work
    return (
        f"{point.how}, {point.source}",
        chart.limit(point),
        f"{point.us:.2f}",
        f"{work.flops / 1e9:.4g}",
        f"{work.bytes / 1e6:.4g}",
        number(work.intensity, 2),
        f"{point.flops_per_s / 1e12:.4g}",
        f"{point.bytes_per_s / 1e12:.3g}",
        f"{chart.share(point):.0%}",
    )
