"""A roofline as a picture, SVG or PNG, that reads on light ground and on dark.

Its ground is transparent, and every colour has a contrast of 3 to 1 or more, text of 4 to 1 or
more, with white and with GitHub's dark ground (`tests/report/test_roofline_figure.py`).
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from asmtune.base.errors import MissingPackageError
from asmtune.report.roofline.document import (
    MOST_LABELS,
    compute_name,
    compute_roofs,
    labels,
    summary,
)
from asmtune.report.roofline.label_places import Box, Label, places
from asmtune.studies.roofline.points import Chart, ChartEntry, Point, Roof

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text


_EDGE: Final = 1.12
"""Distance from the edge of points without an intensity, as a factor."""


@dataclass(frozen=True)
class Window:
    """The ranges of both axes: FLOPs a byte from left to right, FLOP/s from bottom to top."""

    left: float
    right: float
    bottom: float
    top: float

    @classmethod
    def of(cls, chart: Chart) -> Self:
        """Spans all points and every corner of the roofs, with room around."""
        points = points_of(chart)
        dram = next(roof.rate for roof in chart.roofs if roof.name == "DRAM")
        compute = [roof.rate for roof in chart.roofs if roof.kind == "compute"]
        known = [i for point in points if (i := point.work.intensity) is not None]
        left = min([*known, min(compute) / dram]) / 6
        right = max([*known, max(compute) / dram]) * 5
        edges = cls(left, right, 0.0, 0.0)
        heights = [edges.place(point)[1] for point in points]
        lowest = min([*heights, left * dram])
        return cls(left, right, lowest / 2, max(*heights, *compute) * 1.8)

    def place(self, point: Point) -> tuple[float, float]:
        """Returns a point's FLOPs a byte and FLOP/s.

        What does no FLOPs stands on the left edge, as high as its bytes a second put it under
        the memory roofs; what moves no bytes on the right one.
        """
        work = point.work
        if work.intensity is not None:
            return work.intensity, point.flops_per_s
        if work.bytes:
            edge = self.left * _EDGE
            return edge, point.bytes_per_s * edge
        return self.right / _EDGE, point.flops_per_s


def points_of(chart: Chart) -> list[Point]:
    """Lists every point, before and after."""
    return [p for entry in chart.entries for p in (entry.before, entry.after) if p is not None]


_MARKER: Final = 7.0
"""Points of type across the marker of a tuned config; a default's is smaller."""

_FRAME: Final = (0.07, 0.15, 0.745, 0.78)
"""Margins of the axes in the figure; the names of the cores' roofs stand on the right."""

_WIDE: Final = 100.0
"""The ratio of an axis's ends from which on its decades are numbers enough."""

_ARROW: Final = "from the default config to the tuned one, or to the model's first pick"


class Drawing:
    """A roofline while it is drawn, a pixel a point; nothing moves the figure's axes later.

    The cores' roofs and the points under them have `colours`, the rest has `ink`.
    """

    def __init__(self, figure: Figure, chart: Chart, colours: Sequence[str], ink: str) -> None:
        self._axes = figure.add_axes(_FRAME)
        self._chart = chart
        self._ink = ink
        self._window = Window.of(chart)
        self._rates = compute_roofs(chart.roofs)
        self._colours = {
            name: colours[place % len(colours)]
            for place, names in enumerate(self._rates.values())
            for name in names
        }

    def draw(self) -> None:
        """Draws everything."""
        self._grid()
        self._cores()
        names = [self._slope(roof) for roof in self._chart.roofs if roof.kind == "memory"]
        for entry in self._chart.entries:
            self._entry(entry)
        self._labels([box for text in names for box in _stairs(self._box(text))])
        self._legend()

    def _grid(self) -> None:
        window, axes = self._window, self._axes
        axes.set(xscale="log", yscale="log")
        axes.set(xlim=(window.left, window.right), ylim=(window.bottom, window.top))
        axes.set(xlabel="FLOPs a byte of DRAM traffic", ylabel="TFLOP/s")
        _number(axes.xaxis, 1.0, window.right / window.left)
        _number(axes.yaxis, 1e12, window.top / window.bottom)
        axes.grid(which="major", color=self._ink, alpha=0.2, linewidth=0.6)
        axes.set_title(f"{self._chart.target}: {summary(self._chart)}", loc="left", fontsize=10)

    def _cores(self) -> None:
        for roof in self._chart.roofs:
            if roof.kind == "memory" or roof.name != self._rates[roof.rate][0]:
                continue
            (left, _), (right, height) = self._ends(roof)
            colour, names = self._colours[roof.name], self._rates[roof.rate]
            self._axes.plot((left, right), (height, height), color=colour, linewidth=1.2, zorder=1)
            x, y = self._pixels((right, height))
            beside = self._data((x + 5, y))
            self._axes.text(*beside, compute_name(names, roof.rate), color=colour, va="center")

    def _slope(self, roof: Roof) -> Text:
        (left, low), (right, high) = self._ends(roof)
        self._axes.plot((left, right), (low, high), color=self._ink, linewidth=1.2, zorder=1)
        (x0, y0), (x1, y1) = self._pixels((left, low)), self._pixels((right, high))
        angle = math.degrees(math.atan2(y1 - y0, x1 - x0))
        start = left * 1.25
        place = (start, start * roof.rate * 1.08)
        turned: dict[str, Any] = {"rotation": angle, "rotation_mode": "anchor", "va": "bottom"}
        return self._axes.text(*place, roof.label, **turned)

    def _entry(self, entry: ChartEntry) -> None:
        after = self._window.place(entry.after)
        if entry.before is not None and entry.moved:
            before = self._window.place(entry.before)
            self._marker(entry.before, 0.7 * _MARKER)
            distance = math.dist(self._pixels(before), self._pixels(after))
            if distance > 1.5 * _MARKER:
                colour = self._colours[entry.after.counts.unit]
                arrow = {"arrowstyle": "-|>", "color": colour, "shrinkA": 3, "shrinkB": 4}
                self._axes.annotate("", after, before, arrowprops=arrow)
        self._marker(entry.after, _MARKER)

    def _marker(self, point: Point, size: float) -> None:
        colour, (x, y) = self._colours[point.counts.unit], self._window.place(point)
        filled = colour if point.how == "measured" else "none"
        style: dict[str, Any] = {"marker": "o", "markersize": size, "linestyle": "none"}
        style |= {"markeredgecolor": colour, "markerfacecolor": filled, "zorder": 3}
        self._axes.plot([x], [y], **style)

    def _labels(self, taken: Sequence[Box]) -> None:
        entries = self._chart.entries[:MOST_LABELS]
        texts = [self._axes.text(0, 0, t, va="center", ha="center") for t in labels(entries)]
        points = [self._pixels(self._window.place(entry.after)) for entry in entries]
        wanted_labels = [
            Label(x, y, box.right - box.left + 4, box.top - box.bottom + 2)
            for (x, y), box in zip(points, map(self._box, texts), strict=True)
        ]
        extent = self._axes.get_window_extent()
        frame = Box(extent.x0 + 2, extent.y0 + 2, extent.x1 - 2, extent.y1 - 2)
        boxes = places(wanted_labels, frame, [*self._markers(), *taken], self._lines())
        for text, label, box in zip(texts, wanted_labels, boxes, strict=True):
            text.set_position(self._data(box.middle))
            near = box.nearest(label.x, label.y)
            if math.dist(near, (label.x, label.y)) > 1.8 * _MARKER:
                (x0, y0), (x1, y1) = self._data(near), self._data((label.x, label.y))
                self._axes.plot((x0, x1), (y0, y1), color=self._ink, linewidth=0.5, zorder=1)

    def _markers(self) -> list[Box]:
        half = 0.8 * _MARKER
        places = (self._pixels(self._window.place(point)) for point in points_of(self._chart))
        return [Box(x - half, y - half, x + half, y + half) for x, y in places]

    def _legend(self) -> None:
        from matplotlib.lines import Line2D

        style: dict[str, Any] = {"color": self._ink, "marker": "o", "markersize": _MARKER}
        bare = {**style, "linestyle": "none"}
        handles = [
            Line2D([], [], **bare, label="measured"),
            Line2D([], [], **bare, markerfacecolor="none", label="predicted by the model"),
            Line2D([], [], **{**style, "marker": ">"}, label=_ARROW),
        ]
        place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.55, -0.1)}
        self._axes.legend(handles=handles, frameon=False, ncols=3, **place)

    def _ends(self, roof: Roof) -> tuple[tuple[float, float], tuple[float, float]]:
        if roof.kind == "compute":
            fastest = max(other.rate for other in self._chart.roofs if other.kind == "memory")
            return (roof.rate / fastest, roof.rate), (self._window.right, roof.rate)
        left = max(self._window.left, self._window.bottom / roof.rate)
        return (left, left * roof.rate), (max(self._rates) / roof.rate, max(self._rates))

    def _lines(self) -> list[Box]:
        boxes = []
        for roof in self._chart.roofs:
            (x0, y0), (x1, y1) = map(self._pixels, self._ends(roof))
            flat = 1.0 if roof.kind == "compute" else 0.0
            boxes += _stairs(Box(x0, y0 - flat, x1, y1 + flat), steps=1 if flat else 60)
        for entry in self._chart.entries:
            ends = [self._window.place(p) for p in (entry.before, entry.after) if p is not None]
            (x0, y0), (x1, y1) = self._pixels(ends[0]), self._pixels(ends[-1])
            boxes.append(Box(min(x0, x1) - 1, min(y0, y1), max(x0, x1) + 1, max(y0, y1)))
        return boxes

    def _pixels(self, place: tuple[float, float]) -> tuple[float, float]:
        x, y = self._axes.transData.transform(place)
        return float(x), float(y)

    def _data(self, place: tuple[float, float]) -> tuple[float, float]:
        x, y = self._axes.transData.inverted().transform(place)
        return float(x), float(y)

    @staticmethod
    def _box(text: Text) -> Box:
        extent = text.get_window_extent()
        return Box(extent.x0, extent.y0, extent.x1, extent.y1)


def _number(axis: Any, unit: float, span: float) -> None:
    """Formats a tick: at the decades, and at 2 and 5 if an axis spans few of them."""

    def between(value: float, _: int | None = None) -> str:
        return f"{value / unit:g}" if span < _WIDE and f"{value:e}"[0] in "25" else ""

    axis.set_major_formatter(lambda value, _: f"{value / unit:g}")
    axis.set_minor_formatter(between)


def _stairs(box: Box, steps: int = 8) -> list[Box]:
    """Covers a rising line with boxes, since the one around all of it would be mostly empty."""
    across, up = (box.right - box.left) / steps, (box.top - box.bottom) / steps
    corners = [(box.left + step * across, box.bottom + step * up) for step in range(steps)]
    return [Box(x, y, x + across, y + up) for x, y in corners]


INK: Final = "#757a82"
"""Colour of text, axes and memory roofs."""

COLOURS: Final = ("#2f7fd4", "#c4681f", "#2b8f57", "#a860c6", "#c4506a", "#7d8230")
"""Colours of the cores' roofs and of the points under them; they repeat after the last."""

_SIZE: Final = (10.5, 6.4)
_FONT: Final = 9.0
_LAYOUT_DPI: Final = 72.0
_PNG_DPI: Final = 200.0
_INKED: Final = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")


def check_figures() -> None:
    """Makes sure that figures can be drawn.

    Raises:
        MissingPackageError: there is no matplotlib.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            "figures need matplotlib, which is not installed: pip install '.[figures]' "
            "in a clone of asmtune, or take --format table or json"
        ) from error


def draw(chart: Chart, form: str) -> bytes:
    """Returns the picture of a chart with at least one entry as a file's content.

    `form` is "svg" or "png".

    Raises:
        MissingPackageError: there is no matplotlib.
    """
    check_figures()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Text stays text, and equal charts make equal files. No name is read as mathematics.
    style: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "asmtune"}
    style |= {"font.size": _FONT, "text.parse_math": False, **dict.fromkeys(_INKED, INK)}
    with mpl.rc_context(style):
        figure = Figure(figsize=_SIZE, dpi=_LAYOUT_DPI)
        Drawing(figure, chart, COLOURS, INK).draw()
        content = io.BytesIO()
        metadata: dict[str, Any] = {"Title": f"Roofline of {chart.target}: {summary(chart)}"}
        if form == "svg":
            metadata["Date"] = None
        saved: dict[str, Any] = {"format": form, "dpi": _PNG_DPI, "metadata": metadata}
        figure.savefig(content, transparent=True, bbox_inches="tight", **saved)
    return content.getvalue()
