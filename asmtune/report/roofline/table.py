"""A roofline as a table for a terminal."""

from __future__ import annotations

from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from asmtune.report.cells import dtype_words, number, one_line, plain_table, words
from asmtune.studies.roofline.points import Chart, ChartEntry, Point

_HEADINGS: Final = (
    *("kernel", "shape", "dtypes", "", "time is", "roof"),
    *("us", "GFLOP", "MB", "FLOP/B", "TFLOP/s", "TB/s", "of roof", "speed-up"),
)
_WORDS: Final = 6

_HOW: Final = (
    "before: the space's default config; after: the tuned one, or the model's first pick. "
    "roof: what the machine allows at the launch's FLOPs a byte; of roof: how much of that is "
    "reached. A predicted time beside a measured one is scaled by the other's error."
)


def chart_table(chart: Chart) -> Group:
    """A line for a launch before tuning and one after, then the machine's roofs and notes."""
    table = plain_table(f"Roofline of {chart.target}", _HEADINGS, left=_WORDS)
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


def _add(table: Table, chart: Chart, entry: ChartEntry) -> None:
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
