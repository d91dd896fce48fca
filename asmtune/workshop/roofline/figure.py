"""A roofline as a picture, SVG or PNG: FLOP/s over intensity, and below what has no intensity.

All lengths are points of 1/72 inch, which are the figure's pixels.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from asmtune.predict.roofs import Roof
from asmtune.report.figures import COLOURS, INK, MARKERS, RULE, WIDTH, fitted_legend, look, saved
from asmtune.workshop.roofline.chart import Chart, ChartEntry, Point
from asmtune.workshop.roofline.document import (
    MOST_LABELS,
    compute_name,
    compute_roofs,
    labels,
    summary,
)
from asmtune.workshop.roofline.label_places import (
    NEAR,
    Box,
    Label,
    Line,
    Place,
    numbered_together,
    places,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text


@dataclass(frozen=True)
class Window:
    """The ranges of both axes: FLOPs a byte from left to right, FLOP/s from bottom to top."""

    left: float
    right: float
    bottom: float
    top: float

    @classmethod
    def of(cls, chart: Chart) -> Self:
        """Span the points that have an intensity, and the corner of every roof."""
        there = [place_of(point) for entry in plotted(chart) for point in points_of(entry)]
        memory = [roof.rate for roof in chart.roofs if roof.kind == "memory"]
        compute = [roof.rate for roof in chart.roofs if roof.kind == "compute"]
        corners = [compute_ / memory_ for compute_ in compute for memory_ in memory]
        left = min([*corners, *(x for x, _ in there)]) / 3
        lowest = min([left * min(memory) * 2, *(y for _, y in there)])
        right = max([*corners, *(x for x, _ in there)]) * 3
        return cls(left, right, lowest / 2, max([*compute, *(y for _, y in there)]) * 1.8)


def points_of(entry: ChartEntry) -> list[Point]:
    """List a launch's points: the default config's if it is another, then the tuned one's."""
    before = [entry.before] if entry.before is not None and entry.moved else []
    return [*before, entry.after]


def plotted(chart: Chart) -> list[ChartEntry]:
    """List the launches that have an intensity, and so a place under the roofs."""
    return [entry for entry in chart.entries if entry.after.work.intensity is not None]


def place_of(point: Point) -> Place:
    """Return a point's FLOPs a byte and FLOP/s."""
    assert point.work.intensity is not None
    return point.work.intensity, point.flops_per_s


_MARKER: Final = 7.0
"""Points of type across the marker of a tuned config; a default's is smaller."""

_DECADES: Final = 100.0
"""The ratio of an axis's ends from which on its decades are numbers enough."""

_LEFT: Final = 62.0
_RIGHT: Final = 24.0
_TALL: Final = 280.0
"""Height of the panel under the roofs."""

_BELOW: Final = 38.0
"""Room under a panel for numbers and the name of its axis."""

_LINE: Final = 13.0
"""Height of a line of text."""

_GAP: Final = 10.0
_LETTERS: Final = 66
"""Letters that fit in the figure's width; names of launches take half of it."""

_STYLES: Final[tuple[Any, ...]] = ("-", "--", ":")
"""Lines of the memory roofs, slowest first."""


class Drawing:
    """A roofline while it is drawn, from the bottom to the top of a figure."""

    def __init__(self, figure: Figure, chart: Chart) -> None:
        self._figure = figure
        self._chart = chart
        self._width = 72.0 * WIDTH
        self._height = 72.0 * figure.get_figheight()
        self._rates = compute_roofs(chart.roofs)
        self._order = {
            name: order for order, names in enumerate(self._rates.values()) for name in names
        }
        self._memory = sorted((r for r in chart.roofs if r.kind == "memory"), key=lambda r: r.rate)
        names = labels(chart.entries)
        self._names = {id(entry): name for entry, name in zip(chart.entries, names, strict=True)}

    def draw(self, window: Window | None, numbered: bool = False) -> tuple[float, bool]:
        """Draw everything.

        Args:
            window: axes of the panel under the roofs; None if no launch has an intensity.
            numbered: whether points have numbers, and their names stand in a list.

        Returns:
            The height that all of it takes, and whether each label has a place.
        """
        bottom, complete = _GAP, True
        for unit, entries in reversed(self._without_intensity()):
            bottom = self._strip(unit, entries, bottom) + 2 * _GAP
        if numbered:
            bottom = self._list(bottom) + _GAP
        bottom = self._legends(bottom, window is not None) + _GAP
        if window is not None:
            axes = self._axes(_LEFT, bottom + _BELOW, self._width - _LEFT - _RIGHT, _TALL)
            complete = self._roofline(axes, window, numbered)
            bottom += _BELOW + _TALL + _GAP
        return self._title(bottom) + 0.5 * _GAP, complete

    def _axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        across, up = self._width, self._height
        return self._figure.add_axes((left / across, bottom / up, width / across, height / up))

    def _text(self, x: float, y: float, text: str, **style: Any) -> Text:
        return self._figure.text(x / self._width, y / self._height, text, **style)

    def _title(self, bottom: float) -> float:
        lines = textwrap.wrap(summary(self._chart), _LETTERS)
        self._text(_GAP, bottom, "\n".join(lines), va="bottom", linespacing=1.15)
        bottom += _LINE * len(lines)
        name = f"Roofline of {self._chart.target}"
        self._text(_GAP, bottom + 3, name, va="bottom", weight="bold", size=11)
        return bottom + 1.4 * _LINE

    def _legends(self, bottom: float, flops: bool) -> float:
        """Name roofs by colour and line, and markers by form: none of it lies in a panel."""
        from matplotlib.lines import Line2D

        roofs = [
            Line2D([], [], color=RULE, linestyle=style, label=roof.label)
            for roof, style in zip(self._memory, _STYLES, strict=False)
        ]
        shown = {p.counts.unit for entry in self._chart.entries for p in points_of(entry)}
        for rate, names in self._rates.items():
            if flops or shown & set(names):
                style = self._style(names[0], _MARKER, filled=True)
                roofs.append(Line2D([], [], **style, label=compute_name(names, rate)))
        points = [p for entry in self._chart.entries for p in points_of(entry)]
        plain: dict[str, Any] = {"color": INK, "marker": "o", "markersize": _MARKER}
        plain |= {"linestyle": "none", "markeredgecolor": INK}
        marks = []
        if any(point.how == "measured" for point in points):
            marks.append(Line2D([], [], **plain, label="measured"))
        if any(point.how == "predicted" for point in points):
            hollow = {**plain, "markerfacecolor": "none"}
            marks.append(Line2D([], [], **hollow, label="predicted by the model"))
        if any(entry.moved for entry in self._chart.entries):
            small: dict[str, Any] = {"color": INK, "marker": ">", "markersize": 5.0}
            marks.append(Line2D([], [], **small, label=self._arrow()))
        for handles in (marks, roofs):
            place: dict[str, Any] = {"bbox_to_anchor": (_GAP / self._width, bottom / self._height)}
            room = self._width - 2 * _GAP
            _, height = fitted_legend(self._figure, handles, room, loc="lower left", **place)
            bottom += height + 4
        return bottom

    def _arrow(self) -> str:
        picked = {entry.tuned_by == "model" for entry in self._chart.entries if entry.moved}
        ends = (name for name, there in _ENDS.items() if there in picked)
        return f"from the default config to {' or '.join(ends)}"

    def _style(self, unit: str, size: float, *, filled: bool) -> dict[str, Any]:
        order = self._order[unit]
        colour = COLOURS[order % len(COLOURS)]
        style: dict[str, Any] = {"color": colour, "marker": MARKERS[order % len(MARKERS)]}
        style |= {"markersize": size, "markeredgecolor": colour}
        return style if filled else {**style, "markerfacecolor": "none"}

    def _roofline(self, axes: Axes, window: Window, numbered: bool) -> bool:
        axes.set(xscale="log", yscale="log")
        axes.set(xlim=(window.left, window.right), ylim=(window.bottom, window.top))
        axes.set(xlabel="FLOPs a byte read or written", ylabel="TFLOP/s")
        _number(axes.xaxis, 1.0, window.right / window.left)
        _number(axes.yaxis, 1e12, window.top / window.bottom)
        lines = [self._roof(axes, window, roof) for roof in self._chart.roofs]
        taken = []
        for entry in plotted(self._chart):
            here = [_pixels(axes, place_of(point)) for point in points_of(entry)]
            self._points(axes, entry, place_of)
            lines.append(Line(*here[0], *here[-1]))
            half = 0.7 * _MARKER
            taken += [Box(x - half, y - half, x + half, y + half) for x, y in here]
        return self._labels(axes, taken, lines, numbered)

    def _roof(self, axes: Axes, window: Window, roof: Roof) -> Line:
        """Draw a roof: memory's up to the fastest cores, the cores' from the fastest memory on."""
        if roof.kind == "memory":
            left = max(window.left, window.bottom / roof.rate)
            ends = (left, left * roof.rate), (max(self._rates) / roof.rate, max(self._rates))
            order = min(self._memory.index(roof), len(_STYLES) - 1)
            style: dict[str, Any] = {"color": RULE, "linestyle": _STYLES[order]}
        else:
            ends = (roof.rate / self._memory[-1].rate, roof.rate), (window.right, roof.rate)
            style = {"color": COLOURS[self._order[roof.name] % len(COLOURS)]}
        (x0, y0), (x1, y1) = ends
        axes.plot((x0, x1), (y0, y1), **style, linewidth=1.2, zorder=1)
        return Line(*_pixels(axes, ends[0]), *_pixels(axes, ends[1]))

    def _points(self, axes: Axes, entry: ChartEntry, place: Callable[[Point], Place]) -> None:
        ends = [place(point) for point in points_of(entry)]
        far = math.dist(_pixels(axes, ends[0]), _pixels(axes, ends[-1])) > 1.5 * _MARKER
        for point, end in zip(points_of(entry), ends, strict=True):
            size = _MARKER if point is entry.after else 0.7 * _MARKER
            style = self._style(point.counts.unit, size, filled=point.how == "measured")
            axes.plot(*end, **{**style, "linestyle": "none"}, zorder=3)
        if far:
            colour = self._style(entry.after.counts.unit, 1, filled=True)["color"]
            arrow = {"arrowstyle": "-|>", "color": colour, "shrinkA": 3, "shrinkB": 4}
            axes.annotate("", ends[1], ends[0], arrowprops=arrow)

    def _labels(
        self, axes: Axes, taken: Sequence[Box], lines: Sequence[Line], numbered: bool
    ) -> bool:
        entries = plotted(self._chart)[:MOST_LABELS]
        at = [_pixels(axes, place_of(entry.after)) for entry in entries]
        shown = [(here, self._names[id(e)]) for here, e in zip(at, entries, strict=True)]
        wanted, texts = [], []
        for (x, y), name in numbered_together(at, _MARKER) if numbered else shown:
            texts.append(axes.text(*_data(axes, (x, y)), name, va="center", ha="center"))
            extent = texts[-1].get_window_extent()
            wanted.append(Label(x, y, extent.width + 4, extent.height + 2))
        extent = axes.get_window_extent()
        frame = Box(extent.x0 + 2, extent.y0 + 2, extent.x1 - 2, extent.y1 - 2)
        boxes = places(wanted, frame, taken, lines, math.inf if numbered else 3 * NEAR)
        for text, label, box in zip(texts, wanted, boxes, strict=True):
            if box is None:
                text.remove()
                continue
            text.set_position(_data(axes, box.middle))
            if (leader := label.leader(box)) is not None:
                (x0, y0), (x1, y1) = (
                    _data(axes, (leader.x0, leader.y0)),
                    _data(axes, (leader.x1, leader.y1)),
                )
                axes.plot((x0, x1), (y0, y1), color=RULE, linewidth=0.6, zorder=1)
        return None not in boxes

    def _list(self, bottom: float) -> float:
        """List names by the numbers of their points, downwards and then to the right."""
        names = [self._names[id(e)] for e in plotted(self._chart)[:MOST_LABELS]]
        half = _LETTERS // 2 - 4
        columns = 2 if max(map(len, names)) <= half else 1
        rows = math.ceil(len(names) / columns)
        for order, name in enumerate(names):
            x = _GAP + (order // rows) * self._width / columns
            y = bottom + (rows - 1 - order % rows) * _LINE
            self._text(x + 16, y, str(order + 1), va="bottom", ha="right")
            self._text(
                x + 22, y, textwrap.shorten(name, _LETTERS - 4, placeholder="…"), va="bottom"
            )
        return bottom + rows * _LINE

    def _without_intensity(self) -> list[tuple[str, list[ChartEntry]]]:
        """Group launches without FLOPs by bytes a second, and those without bytes by FLOP/s."""
        rest = [e for e in self._chart.entries if e.after.work.intensity is None]
        still = [e for e in rest if e.after.work.flops and not e.after.work.bytes]
        moving = [e for e in rest if e not in still]
        return [(u, e) for u, e in (("TB/s", moving), ("TFLOP/s", still)) if e]

    def _strip(self, unit: str, entries: Sequence[ChartEntry], bottom: float) -> float:
        """Draw a row for each launch, its name on the left; roofs are upright lines."""
        names = [textwrap.wrap(self._names[id(e)], _LETTERS // 2) for e in entries]
        heights = [_LINE * len(lines) + 8 for lines in names]
        left = 0.5 * self._width
        axes = self._axes(left, bottom + _BELOW, self._width - left - _RIGHT, sum(heights))
        kind, title = _STRIPS[unit]
        roofs = [roof for roof in self._chart.roofs if roof.kind == kind]
        rates = {id(p): _rate(p, unit) for entry in entries for p in points_of(entry)}
        most = max([*rates.values(), *(roof.rate / 1e12 for roof in roofs)])
        axes.set(
            xlim=(0, 1.06 * most), ylim=(0, sum(heights)), xlabel=f"{title}, {unit}", yticks=[]
        )
        for roof in roofs:
            if kind == "memory":
                style: dict[str, Any] = {"color": RULE}
                style["linestyle"] = _STYLES[min(self._memory.index(roof), len(_STYLES) - 1)]
            else:
                style = {"color": COLOURS[self._order[roof.name] % len(COLOURS)]}
            axes.axvline(roof.rate / 1e12, **style, linewidth=1.2, zorder=1)
        top = float(sum(heights))
        for entry, lines, height in zip(entries, names, heights, strict=True):
            middle = top - height / 2
            here = bottom + _BELOW + middle
            self._text(left - 8, here, "\n".join(lines), ha="right", va="center", linespacing=1.1)
            self._points(axes, entry, partial(_beside, middle, rates))
            top -= height
        return bottom + _BELOW + sum(heights)


_ENDS: Final = {"the tuned one": False, "the model's first pick": True}
_STRIPS: Final = {
    "TB/s": ("memory", "without FLOPs: bytes a second"),
    "TFLOP/s": ("compute", "without bytes: FLOPs a second"),
}


def _beside(height: float, rates: Mapping[int, float], point: Point) -> Place:
    return rates[id(point)], height


def _rate(point: Point, unit: str) -> float:
    return (point.bytes_per_s if unit == "TB/s" else point.flops_per_s) / 1e12


def _pixels(axes: Axes, place: Place) -> Place:
    x, y = axes.transData.transform(place)
    return float(x), float(y)


def _data(axes: Axes, place: Place) -> Place:
    x, y = axes.transData.inverted().transform(place)
    return float(x), float(y)


def _number(axis: Any, unit: float, span: float) -> None:
    """Format a tick: at the decades, and at 2 and 5 if an axis spans few of them."""

    def between(value: float, _: int | None = None) -> str:
        return f"{value / unit:g}" if span < _DECADES and f"{value:e}"[0] in "25" else ""

    axis.set_major_formatter(lambda value, _: f"{value / unit:g}")
    axis.set_minor_formatter(between)


def check_figures() -> None:
    """Make sure that figures can be drawn.

    Raises:
        MissingPackageError: there is no matplotlib.
    """
    with look():
        pass


def drawn(chart: Chart) -> Figure:
    """Return the figure of a chart with at least one entry; within `look`.

    Names stand beside their points. If one of them has no free place, points have numbers.
    """
    from matplotlib.figure import Figure

    window = Window.of(chart) if plotted(chart) else None
    numbered, height = False, 10.0
    for _ in range(4):
        figure = Figure(figsize=(WIDTH, height))
        needed, complete = Drawing(figure, chart).draw(window, numbered)
        if abs(needed / 72 - height) < 1e-6 and (complete or numbered):
            break
        height, numbered = needed / 72, numbered or not complete
    return figure


def draw(chart: Chart, form: str) -> bytes:
    """Return the picture of a chart with at least one entry as a file's content.

    `form` is "svg" or "png".

    Raises:
        MissingPackageError: there is no matplotlib.
    """
    with look():
        return saved(drawn(chart), form, f"Roofline of {chart.target}: {summary(chart)}")
