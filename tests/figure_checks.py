"""Checks of a drawn figure: its texts, its lines, its axes and its colours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.contrast import contrast

# Before what imports it: the tests of figures are skipped where it is missing.
pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[figures]'")

from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Text

from asmtune.workshop.roofline.figure_style import COLOURS, GROUND, INK, RULE

COLUMN = 740
"""Pixels of a browser across the docs' column."""


@dataclass(frozen=True)
class Box:
    """A rectangle by its edges."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        """Compute the area that two boxes share."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return width * height if width > 0 and height > 0 else 0.0

    def inside(self, other: Box) -> bool:
        """Say if another box holds all of it."""
        across = other.left <= self.left and self.right <= other.right
        return across and other.bottom <= self.bottom and self.top <= other.top


@dataclass(frozen=True)
class Line:
    """A straight line between two points."""

    x0: float
    y0: float
    x1: float
    y1: float

    def crosses(self, box: Box) -> bool:
        """Say if a part of it lies within a box."""
        first, last = 0.0, 1.0
        for start, end, low, high in (
            (self.x0, self.x1, box.left, box.right),
            (self.y0, self.y1, box.bottom, box.top),
        ):
            if start == end:
                if not low < start < high:
                    return False
                continue
            ends = sorted(((low - start) / (end - start), (high - start) / (end - start)))
            first, last = max(first, ends[0]), min(last, ends[1])
        return first < last


def box(artist: Any) -> Box:
    """The rectangle that an artist covers."""
    extent = artist.get_window_extent()
    return Box(extent.x0, extent.y0, extent.x1, extent.y1)


def ticks_of(figure: Figure) -> list[Any]:
    """Every tick that is drawn."""
    axes = [axis for panel in figure.axes for axis in (panel.xaxis, panel.yaxis)]
    return [tick for axis in axes for tick in axis._update_ticks()]


def texts_of(figure: Figure) -> list[Text]:
    """Every text that is drawn."""
    figure.draw_without_rendering()
    labels = {id(text) for axes in figure.axes for text in axes.findobj(Text)} - {
        id(text)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.majorTicks, *axis.minorTicks)
        for text in (tick.label1, tick.label2)
    }
    inside = {id(t) for axes in figure.axes for t in axes.findobj(Text)}
    rest = [t for t in figure.findobj(Text) if id(t) in labels or id(t) not in inside]
    rest += [tick.label1 for tick in ticks_of(figure)]
    return [text for text in rest if text.get_text().strip() and text.get_visible()]


def lines_of(figure: Figure) -> Iterator[Line]:
    """Every line of data, whisker, roof, leader and grid, in pixels."""
    drawn = [line for axes in figure.axes for line in axes.lines]
    drawn += [tick.gridline for tick in ticks_of(figure) if tick.gridline.get_visible()]
    for line in drawn:
        if line.get_linestyle() not in ("None", "none", ""):
            points = line.get_transform().transform(line.get_xydata())
            yield from (Line(*a, *b) for a, b in itertools.pairwise(points))


def solids_of(figure: Figure) -> list[Box]:
    """Every bar, arrow and marker, in pixels."""
    solids = [box(patch) for axes in figure.axes for patch in axes.patches]
    solids += [box(arrow) for arrow in figure.findobj(FancyArrowPatch)]
    for line in (line for axes in figure.axes for line in axes.lines):
        if line.get_marker() not in ("None", "none", "", None):
            half = line.get_markersize() / 2
            for x, y in line.get_transform().transform(line.get_xydata()):
                solids.append(Box(x - half, y - half, x + half, y + half))
    return solids


def check_texts(figure: Figure) -> None:
    """No text touches another, a line, a bar or a marker; all of it is in the figure and large."""
    texts, lines, solids = texts_of(figure), list(lines_of(figure)), solids_of(figure)
    across, up = figure.get_size_inches() * 72
    for one, other in itertools.combinations(texts, 2):
        assert box(one).overlap(box(other)) == 0, (one.get_text(), other.get_text())
    for text in texts:
        place, words = box(text), text.get_text()
        assert not [line for line in lines if line.crosses(place)], words
        assert not [solid for solid in solids if solid.overlap(place)], words
        assert place.inside(Box(0, 0, across, up)), words
        shown = text.get_fontsize() / 72 * min(96, COLUMN / (across / 72))
        assert shown >= 10, words


def check_axes(figure: Figure) -> None:
    """Each axis covers its data, whiskers and bars, and has a name or names its ticks."""
    for axes in figure.axes:
        frame = box(axes)
        wide = Box(frame.left - 1, frame.bottom - 1, frame.right + 1, frame.top + 1)
        assert all(solid_in(solid, wide) for solid in map(box, axes.patches))
        for line in axes.lines:
            for x, y in line.get_transform().transform(line.get_xydata()):
                assert Box(x, y, x, y).inside(wide), (axes.get_xlabel(), line.get_label())
        assert axes.get_xlabel() or [t for t in axes.get_xticklabels() if t.get_text()]


def solid_in(solid: Box, frame: Box) -> bool:
    """An arrow's box may be empty before it is drawn."""
    return solid.inside(frame) or solid.left >= solid.right


def legend_of(figure: Figure) -> set[str]:
    """The words of all legends, lines joined."""
    legends = [*figure.legends, *(x for axes in figure.axes if (x := axes.get_legend()))]
    return {" ".join(text.get_text().split()) for one in legends for text in one.get_texts()}


def check_colours(figure: Figure) -> None:
    """Each colour is of the palette; text has 4.5 to 1, lines and marks 3 to 1."""
    assert to_hex(figure.get_facecolor()) == GROUND
    words = {to_hex(text.get_color()) for text in texts_of(figure)}
    marks = {to_hex(line.get_color()) for line in figure.findobj(Line2D)}
    marks |= {to_hex(bar.get_facecolor()) for axes in figure.axes for bar in axes.patches}
    # Ticks that matplotlib keeps and does not draw are black.
    marks -= {"#000000"}
    assert words | marks <= {GROUND, INK, RULE, *COLOURS}
    for colours, least in ((words, 4.5), (marks, 3.0)):
        for colour in colours:
            assert contrast(colour, GROUND) >= least, colour
