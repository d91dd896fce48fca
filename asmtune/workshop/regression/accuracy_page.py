"""Accuracy runs as a table, JSON, a figure and a page."""

from __future__ import annotations

from dataclasses import fields
from itertools import accumulate, cycle
from typing import TYPE_CHECKING, Any, Final

from asmtune.base.html import HtmlTable, document, page
from asmtune.base.json_codec import to_json
from asmtune.measure.accuracy import AccuracyStats
from asmtune.report.cells import ReportTable, one_line, plain_table, words
from asmtune.report.documents import document_text
from asmtune.report.figures import COLOURS, MARKERS, RULE, WIDTH, fitted_legend, look, saved
from asmtune.workshop.regression.accuracy_run import AccuracyRow, AccuracyRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT: Final = "asmtune-accuracy"

_NAMES: Final = {"p999": "p99.9", "cosine": "1 - cosine", "kl": "KL", "nonfinite": "NaN, inf"}
_LEFT_OUT: Final = ("p99_ulps", "mean_abs", "kl", "p50", "p90", "amax", "max_abs")
"""Statistics that a narrow terminal does not show, the first of these first."""


def _heading(name: str) -> str:
    spelled = name.replace("ulps", "ULPs").replace("rms", "RMS").replace("_", " ")
    return _NAMES.get(name, spelled)


_STATS: Final = tuple(
    sorted((f.name for f in fields(AccuracyStats)[1:]), key=lambda name: name == "nonfinite")
)
_COLUMNS: Final = ("variant", "dtype", *map(_heading, _STATS), "scale max/mean")
_OCTAVE: Final = 8  # bins of `ErrorHistogram` an octave
_HEIGHT: Final = 3.0
_LEAST: Final = 1e-7
"""Share of elements at which the figure's axes end at the latest."""


def _title(run: AccuracyRun) -> str:
    shape = f" {words(run.shape)}" if run.shape else ""
    inputs = f"{one_line(run.inputs)} inputs, seed {run.seed}"
    return f"{one_line(run.kernel)}{shape} {run.dtype} against {one_line(run.against)}, {inputs}"


def _cells(row: AccuracyRow) -> list[str]:
    values = {name: getattr(row.stats, name) for name in _STATS}
    values["cosine"] = max(0.0, 1.0 - values["cosine"])
    texts = [f"{value:.3g}" for value in values.values()]
    scales = row.scales
    ratio = "-" if scales is None else f"{scales.most / scales.mean:.3g}"
    return [one_line(row.name), row.dtype, *texts, ratio]


def accuracy_table(run: AccuracyRun) -> ReportTable:
    """Tabulate the errors, a row a variant and output."""
    table = plain_table(
        _title(run), _COLUMNS, left=2, spare=[*map(_heading, _LEFT_OUT), "scale max/mean"]
    )
    for row in run.rows:
        table.add_row(*_cells(row), style="red" if row.stats.nonfinite else None)
    return table


def accuracy_json(run: AccuracyRun) -> str:
    """Write the run as JSON, `{"format": "asmtune-accuracy", "version": 1, ...}`."""
    return document_text(FORMAT, to_json(run))


def accuracy_page(run: AccuracyRun) -> str:
    """Write the run as an HTML page of its own: figure and table, without scripts."""
    table = HtmlTable("Errors", _COLUMNS, [_cells(row) for row in run.rows], frozenset((0, 1)))
    versions = ", ".join(f"{name} {version}" for name, version in run.environment.versions.items())
    body = document(_title(run), [f"{run.environment.gpu}; {versions}; {run.date}"], [table])
    figure = accuracy_figure(run, "svg").decode()
    return page(run.kernel, body + figure[figure.index("<svg") :])


def accuracy_figure(run: AccuracyRun, form: str) -> bytes:
    """Draw elements by relative error, and the share of elements beyond each error.

    Args:
        run: what to draw; a line a row.
        form: "svg", "png" or "pdf".

    Raises:
        MissingPackageError: there is no matplotlib.
    """
    with look(text=False):
        return saved(_figure(run), form)


def _figure(run: AccuracyRun) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, _HEIGHT + 0.25 * len(run.rows)))
    counted, beyond = figure.subplots(1, 2)
    lines: list[Any] = []
    for row, colour, marker in zip(run.rows, cycle(COLOURS), cycle(MARKERS), strict=False):
        style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 3}
        octaves, tail = _series(row)
        counted.plot(*octaves, linewidth=1.2, **style)
        style |= {"markevery": _OCTAVE, "label": f"{one_line(row.name)}, {row.dtype}"}
        lines += beyond.plot(*tail, linewidth=1.2, **style)
    names = ("share of elements an octave", "share of elements beyond")
    for axis, name in zip((counted, beyond), names, strict=True):
        if not any(row.histogram.counts for row in run.rows):
            axis.plot([1.0], [1.0], alpha=0)  # nothing differs: matplotlib needs a number
        axis.set(xscale="log", yscale="log", xlabel="relative error", title=name)
        axis.set_ylim(bottom=max(_LEAST, axis.get_ylim()[0]), top=1.5)
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_major_formatter(lambda value, _: f"{value:g}")
            scale.set_minor_formatter(lambda *_: "")
        axis.grid(color=RULE, alpha=0.25, linewidth=0.5)
    for share in (0.1, 0.01, 0.001):
        beyond.axhline(share, color=RULE, linewidth=0.6, linestyle="--")
    _, height = fitted_legend(
        figure, lines, 72 * WIDTH - 40, loc="lower left", bbox_to_anchor=(0.03, 0.02)
    )
    bottom = (height + 44) / (72 * figure.get_figheight())
    figure.subplots_adjust(left=0.11, right=0.98, top=0.9, bottom=bottom, wspace=0.32)
    return figure


Series = tuple[list[float], list[float]]


def _series(row: AccuracyRow) -> tuple[Series, Series]:
    """Return shares by octave at their middles, and the share above each lower edge."""
    histogram = row.histogram
    total = max(1, sum(histogram.counts) + histogram.zeros)
    octaves: dict[int, int] = {}
    for place, count in enumerate(histogram.counts):
        octaves[place // _OCTAVE] = octaves.get(place // _OCTAVE, 0) + count
    shown = {place: count / total for place, count in octaves.items() if count}
    middles = [histogram.edges[place * _OCTAVE] * 2**0.5 for place in shown]
    left = list(accumulate(reversed(histogram.counts)))[::-1]
    return (middles, list(shown.values())), (list(histogram.edges[:-1]), [n / total for n in left])
