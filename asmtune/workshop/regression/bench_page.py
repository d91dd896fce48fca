"""Rates and efficiency of a bench run: a table, JSON, and a figure of share against size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from asmtune.measure.timing.race import unsteady
from asmtune.report.cells import (
    ReportTable,
    count,
    number,
    one_line,
    plain_table,
    share,
    words,
)
from asmtune.report.documents import document_text
from asmtune.report.figures import COLOURS, MARKERS, WIDTH, fitted_legend, look, saved
from asmtune.store.trace.reader import encoded
from asmtune.workshop.regression.efficiency import EfficiencyCurve, curves_of
from asmtune.workshop.regression.run import POLICY, BenchRun

EFFICIENCY_FORMAT: Final = "asmtune-efficiency"

_HEADINGS: Final = ("p50 us", "p90 us", "p99 us", "RSD", "samples", "GOPS", "GB/s", "GOPS/W")


def bench_table(run: BenchRun) -> Group:
    """Tabulate every row with its statistics and rates, then best working points and doubts."""
    curves = curves_of(run)
    parts: list[RenderableType] = [_table(run, curves)]
    parts += [Text(_best(curve)) for curve in curves]
    parts += [Text(line, "yellow") for line in _unsteady(run)]
    return Group(*parts)


def bench_json(run: BenchRun) -> str:
    """Write rows and curves: `{"format", "version", "rows": [...], "curves": [...]}`."""
    rows = [
        {
            **encoded(row.subject),
            "statistics": encoded(row.statistics),
            "energy_mj": row.energy_mj,
            "steady": not unsteady(row.statistics, POLICY),
        }
        for row in run.rows
    ]
    curves = [_curve_json(curve) for curve in curves_of(run)]
    gpu, limit = run.environment.gpu, POLICY.rsd
    document = {"gpu": gpu, "rsd_limit": limit, "rows": rows, "curves": curves}
    return document_text(EFFICIENCY_FORMAT, document)


def bench_figure(run: BenchRun, form: str) -> bytes:
    """Draw the share of the roofline, or of the best rate, over sizes: a line per curve.

    A ring marks each best working point; `form` is ".svg", ".png" or ".pdf".
    """
    with look(text=False):
        return saved(_drawn(curves_of(run), run.environment.gpu), form.lstrip("."))


def _table(run: BenchRun, curves: Sequence[EfficiencyCurve]) -> ReportTable:
    spare = ("p90 us", "GB/s", "samples", "p99 us")
    table = plain_table("Times, rates and efficiency", ("kernel", "shape"), left=2, spare=spare)
    table.add_column("dtype", left=True)
    for heading in (*_HEADINGS, "efficiency"):
        table.add_column(heading)
    points = {
        point.row.subject.identity: (point, efficiency, curve.best is point)
        for curve in curves
        for point, efficiency in zip(curve.points, curve.efficiencies, strict=True)
    }
    for row in run.rows:
        point, efficiency, is_best = points.get(row.subject.identity, (None, None, False))
        found = row.statistics
        table.add_row(
            one_line(row.subject.kernel),
            words(row.subject.shape),
            one_line(row.subject.dtype),
            *(number(us, 2) for us in (found.p50_us, found.p90_us, found.p99_us)),
            share(found.rsd),
            count(found.samples),
            number(point.gops if point and point.load.flops else None),
            number(point.gbytes_per_s if point else None),
            number(point.gops_per_w if point else None, 2),
            share(efficiency) + ("*" if is_best else ""),
        )
    return table


def _best(curve: EfficiencyCurve) -> str:
    at, best = curve.best_place, curve.best
    name = f"{one_line(curve.kernel)} {one_line(curve.dtype)}"
    rate = f"{best.gops:.1f} GOPS" if best.load.flops else f"{best.gbytes_per_s:.1f} GB/s"
    efficiency = f"{curve.efficiencies[at]:.1%} of the {curve.basis}"
    return f"{name}: best working point {words(best.row.subject.shape)}: {rate}, {efficiency}"


def _unsteady(run: BenchRun) -> Iterator[str]:
    for row in run.rows:
        if remark := unsteady(row.statistics, POLICY):
            yield f"{one_line(row.subject.kernel)} {words(row.subject.shape)}: {remark}"


def _curve_json(curve: EfficiencyCurve) -> dict[str, Any]:
    points = [
        {
            "shape": encoded(point.row.subject.shape),
            "us": point.us,
            "flops": point.load.flops,
            "bytes": point.load.bytes,
            "gops": point.gops,
            "gbytes_per_s": point.gbytes_per_s,
            "gops_per_w": point.gops_per_w,
            "roofline_share": point.roofline_share,
            "efficiency": efficiency,
        }
        for point, efficiency in zip(curve.points, curve.efficiencies, strict=True)
    ]
    best = encoded(curve.best.row.subject.shape)
    head = {"kernel": curve.kernel, "dtype": curve.dtype, "basis": curve.basis}
    return {**head, "best": best, "points": points}


def _drawn(curves: Sequence[EfficiencyCurve], gpu: str) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    axis = figure.add_subplot()
    looks = zip(cycle(COLOURS), cycle(MARKERS), strict=False)
    for curve, (colour, marker) in zip(curves, looks, strict=False):
        sizes = [point.size for point in curve.points]
        shares = [100 * efficiency for efficiency in curve.efficiencies]
        label = one_line(f"{curve.kernel} {curve.dtype}, of the {curve.basis}")
        style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4}
        axis.plot(sizes, shares, linewidth=1.2, label=label, **style)
        at = curve.best_place
        ring: dict[str, Any] = {"fillstyle": "none", "markersize": 11, "color": colour}
        axis.plot(sizes[at : at + 1], shares[at : at + 1], "o", **ring)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0e}".replace("e+", "e"))
    axis.set_ylim(bottom=0)
    axis.set_xlabel("operations of a launch (bytes where it has none)")
    axis.set_ylabel("efficiency, %")
    axis.set_title(f"Efficiency over sizes, {one_line(gpu)}; a ring marks the best")
    handles, _ = axis.get_legend_handles_labels()
    if handles:
        fitted_legend(figure, handles, 72 * WIDTH - 20, loc="outside lower center")
    return figure
