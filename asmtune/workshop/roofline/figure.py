"""A roofline as a picture, SVG or PNG: FLOP/s over intensity, and a legend that names each launch.

No text is in the panel, so that none lies on a line or a marker. Launches without FLOPs or without
bytes have no place in it; the table has them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from asmtune.workshop.roofline.chart import Chart, ChartEntry, Point
from asmtune.workshop.roofline.document import compute_name, compute_roofs, labels, summary
from asmtune.workshop.roofline.figure_style import (
    COLOURS,
    INK,
    MARKERS,
    RULE,
    WIDTH,
    fitted_legend,
    look,
    saved,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKER: Final = 7.0
"""Points of type across the marker of a tuned config; a default's is smaller."""

_PANEL: Final = 300.0
"""Points of 1/72 inch that the panel has, its axes' names included."""

_TITLE: Final = 40.0
_LINE: Final = 14.0
_EDGE: Final = 10.0
_LETTERS: Final = 66
"""Letters that fit in the figure's width."""

_LINES: Final[tuple[Any, ...]] = ("-", "--", ":", "-.")


def points_of(entry: ChartEntry) -> list[Point]:
    """List a launch's points: the default config's if it is another, then the tuned one's."""
    before = [entry.before] if entry.before is not None and entry.moved else []
    return [*before, entry.after]


def plotted(chart: Chart) -> list[ChartEntry]:
    """List the launches that have an intensity, and so a place under the roofs."""
    return [entry for entry in chart.entries if entry.after.work.intensity is not None]


def place_of(point: Point) -> tuple[float, float]:
    """Return a point's FLOPs a byte and FLOP/s."""
    assert point.work.intensity is not None
    return point.work.intensity, point.flops_per_s


def drawn(chart: Chart) -> Figure:
    """Return the figure of a chart with at least one entry; within `look`."""
    from matplotlib.figure import Figure

    lines = textwrap.wrap(summary(chart), _LETTERS)
    rows = len(lines) + len(plotted(chart)) + len(chart.roofs) + 3
    across, up = 72 * WIDTH, _PANEL + _TITLE + _LINE * rows
    figure = Figure(figsize=(WIDTH, up / 72))
    axes = figure.add_axes((0.13, 0.5, 0.83, 0.4))
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel="FLOPs a byte read or written", ylabel="TFLOP/s")
    bottom = _EDGE
    for handles in (_signs(chart), _roofs(axes, chart), _launches(axes, chart)):
        place: dict[str, Any] = {"bbox_to_anchor": (_EDGE / across, bottom / up)}
        if handles:
            _, height = fitted_legend(figure, handles, across - 20, loc="lower left", **place)
            bottom += height + 6
    top = up - _TITLE - _LINE * len(lines)
    axes.set_position((0.13, (bottom + 40) / up, 0.83, (top - bottom - 40) / up))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1e12:g}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(lambda *_: "")
    name = f"Roofline of {chart.target}"
    figure.text(_EDGE / across, 1 - 8 / up, name, va="top", weight="bold", size=11)
    figure.text(_EDGE / across, 1 - 26 / up, "\n".join(lines), va="top", linespacing=1.15)
    return figure


def _launches(axes: Axes, chart: Chart) -> list[Any]:
    """Draw all launches that have a place; return what names them in a legend."""
    names = dict(zip(map(id, chart.entries), labels(chart.entries), strict=True))
    looks = zip(plotted(chart), cycle(COLOURS), _markers(), strict=False)
    return [_draw(axes, one, names[id(one)], colour, marker) for one, colour, marker in looks]


def _markers() -> Iterator[str]:
    """Yield markers so that no two of 36 launches share marker and colour."""
    for turn in cycle(range(len(MARKERS))):
        yield from MARKERS[turn:] + MARKERS[:turn]


def _draw(axes: Axes, entry: ChartEntry, name: str, colour: str, marker: str) -> Any:
    """Draw a launch's points and the arrow between them; return what names it in a legend."""
    from matplotlib.lines import Line2D

    style: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": "none"}
    style |= {"markeredgecolor": colour}
    ends = [place_of(point) for point in points_of(entry)]
    for point, end in zip(points_of(entry), ends, strict=True):
        size = _MARKER if point is entry.after else 0.7 * _MARKER
        face = colour if point.how == "measured" else "none"
        axes.plot(*end, **style, markersize=size, markerfacecolor=face, zorder=3)
    if len(ends) > 1:
        arrow = {"arrowstyle": "-|>", "color": colour, "shrinkA": 3, "shrinkB": 4}
        axes.annotate("", ends[1], ends[0], arrowprops=arrow)
    label = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"
    return Line2D([], [], **style, markersize=_MARKER, label=label)


def _roofs(axes: Axes, chart: Chart) -> list[Any]:
    """Draw memory's roofs up to the fastest cores, and the cores' from the fastest memory on."""
    memory = sorted((r for r in chart.roofs if r.kind == "memory"), key=lambda roof: roof.rate)
    compute = compute_roofs(chart.roofs)
    most, entries = max(compute, default=0.0), plotted(chart)
    if not most:
        return []
    corners = [rate / roof.rate for rate in compute for roof in memory]
    there = [place_of(point) for entry in entries for point in points_of(entry)]
    left = min([*corners, *(x for x, _ in there)]) / 3
    right = max([*corners, *(x for x, _ in there)]) * 3
    lowest = min([left * memory[0].rate * 2, *(y for _, y in there)]) / 2
    axes.set(xlim=(left, right), ylim=(lowest, max(most, *(y for _, y in there), 0.0) * 1.8))
    handles: list[Any] = []
    for roof, line in zip(memory, cycle(_LINES), strict=False):
        start = max(left, lowest / roof.rate)
        ends = (start, most / roof.rate), (start * roof.rate, most)
        handles += axes.plot(*ends, color=RULE, linestyle=line, label=roof.label, zorder=1)
    for (rate, names), line in zip(compute.items(), cycle(_LINES), strict=False):
        ends = (rate / memory[-1].rate, right), (rate, rate)
        name = compute_name(names, rate)
        handles += axes.plot(*ends, color=INK, linestyle=line, label=name, zorder=1)
    return handles


def _signs(chart: Chart) -> list[Any]:
    """Return what explains the forms of markers in a legend."""
    from matplotlib.lines import Line2D

    points = [point for entry in plotted(chart) for point in points_of(entry)]
    plain: dict[str, Any] = {"color": INK, "marker": "o", "linestyle": "none"}
    signs = []
    for how, label in (("measured", "measured"), ("predicted", "predicted by the model")):
        if any(point.how == how for point in points):
            face = INK if how == "measured" else "none"
            signs.append(Line2D([], [], **plain, markerfacecolor=face, label=label))
    if any(entry.moved for entry in plotted(chart)):
        picked = {entry.tuned_by == "model" for entry in plotted(chart) if entry.moved}
        ends = [name for name, by_model in _ENDS.items() if by_model in picked]
        label = f"from the default config to {' or '.join(ends)}"
        signs.append(Line2D([], [], color=INK, marker=">", markersize=5.0, label=label))
    return signs


_ENDS: Final = {"the tuned one": False, "the model's first pick": True}


def check_figures() -> None:
    """Make sure that figures can be drawn.

    Raises:
        MissingPackageError: there is no matplotlib.
    """
    with look():
        pass


def draw(chart: Chart, form: str) -> bytes:
    """Return the picture of a chart with at least one entry as a file's content.

    `form` is "svg" or "png".

    Raises:
        MissingPackageError: there is no matplotlib.
    """
    with look():
        return saved(drawn(chart), form, f"Roofline of {chart.target}: {summary(chart)}")
