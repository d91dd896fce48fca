"""Figure of docs/kernels.md: each kernel's speed over the vendor's function.

    python -m benchmarks.kernels.figure

Needs no GPU, and matplotlib (`pip install '.[figures]'`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asmtune.workshop.roofline.figure_style import (
    COLOURS,
    MARKERS,
    RULE,
    WIDTH,
    fitted_legend,
    look,
    saved,
)
from benchmarks.harness import DOCS
from benchmarks.kernels.entries import ENTRIES
from benchmarks.kernels.rows import summary
from benchmarks.kernels.table import FILE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE = DOCS / "kernels.svg"
KINDS = {
    "vendor library": "compared with a vendor's library: cuBLAS, cuDNN, or SDPA's fastest backend",
    "PyTorch function": "compared with a PyTorch function, which has kernels of its own",
    "eager PyTorch": "compared with several operations of eager PyTorch",
}
"""The legend's words for each `Entry.vendor_kind`, from the top of the figure to its bottom."""

RANGE = "slowest to fastest of all shapes and dtypes; marks: geometric means"
TITLE = "Speed of asmtune's kernels over the functions that they replace"
_ROW = 17.0
_LEFT, _RIGHT, _BOTTOM = 158.0, 136.0, 40.0
"""Points beside and under the panel: names, figures, and the axis's numbers."""


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the figure as SVG.

    Args:
        rows: the table's rows.
        path: path of the SVG.
    """
    with look():
        path.write_bytes(saved(drawn(rows), "svg", TITLE))


def drawn(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw a line a kernel: geometric mean and range on a logarithmic axis, and both in figures."""
    from matplotlib.figure import Figure

    by_kernel: dict[str, list[float]] = {}
    for row in rows:
        if "over_vendor" in row:
            by_kernel.setdefault(row["kernel"], []).append(row["over_vendor"])
    means = summary(rows)["over_vendor_by_kernel"]
    named = sorted(means, key=lambda name: -means[name]["geometric_mean"])
    groups = [(kind, [name for name in named if _kind(name) == kind]) for kind in KINDS]
    groups = [(kind, names) for kind, names in groups if names]
    tall = _ROW * (len(named) + 0.6 * (len(groups) - 1) + 1.4)
    legend = _ROW * (len(groups) + 1) + 8
    across, up = 72 * WIDTH, _BOTTOM + tall + legend + 22
    figure = Figure(figsize=(WIDTH, up / 72))
    panel = (_LEFT / across, _BOTTOM / up, (across - _LEFT - _RIGHT) / across, tall / up)
    axis = figure.add_axes(panel)
    axis.set_ylim(_ROW / 2 - tall, _ROW / 2)
    height = -_ROW
    ticks = {}
    for kind, names in groups:
        for name in names:
            _line(axis, height, kind, means[name]["geometric_mean"], by_kernel[name])
            ticks[height] = name
            height -= _ROW
        height -= 0.6 * _ROW
    axis.set_yticks(list(ticks), list(ticks.values()))
    _scale(axis, [factor for factors in by_kernel.values() for factor in factors])
    place = {"loc": "lower left", "bbox_to_anchor": (8 / across, (_BOTTOM + tall + 8) / up)}
    fitted_legend(figure, _handles([kind for kind, _ in groups]), 0, **place)
    figure.text(8 / across, 1 - 8 / up, TITLE, va="top", weight="bold", size=11)
    return figure


def _kind(name: str) -> str:
    return ENTRIES[name].vendor_kind


def _style(kind: str) -> dict[str, Any]:
    order = list(KINDS).index(kind)
    return {"color": COLOURS[order], "marker": MARKERS[order], "markersize": 7, "linestyle": "none"}


def _line(axis: Any, height: float, kind: str, mean: float, factors: Sequence[float]) -> None:
    axis.plot([min(factors), max(factors)], [height, height], color=RULE, linewidth=1.4, zorder=2)
    axis.plot([mean], [height], **_style(kind), zorder=3)
    beside = {"transform": axis.get_yaxis_transform(), "va": "center", "ha": "right"}
    axis.text(1.26, height, f"{mean:.2f}", **beside, weight="bold")
    axis.text(1.74, height, f"{min(factors):.2f} to {max(factors):.2f}", **beside)


def _scale(axis: Any, factors: Sequence[float]) -> None:
    """Scale the axis by doublings from under the least factor to over the greatest."""
    least, most = math.log2(min([*factors, 0.6])), math.log2(max([*factors, 1.8]))
    doublings = range(math.floor(least), math.ceil(most) + 1)
    axis.set(xscale="log", xlim=(2.0 ** (least - 0.3), 2.0 ** (most + 0.3)))
    step = math.ceil(len(doublings) / 6)
    there = [n for n in doublings if least - 0.3 <= n <= most + 0.3 and n % step == 0]
    axis.set_xticks([2.0**n for n in there], [f"{2.0**n:g}" for n in there])
    axis.minorticks_off()
    axis.grid(axis="x", alpha=0.3, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.axvline(1.0, color=RULE, linewidth=1.2, linestyle="--", zorder=1)
    axis.set_xlabel("times as fast (1: as fast), log scale")
    axis.tick_params(axis="y", length=0)
    top = axis.get_ylim()[1] - _ROW / 4
    heads = {"transform": axis.get_yaxis_transform(), "va": "top", "ha": "right"}
    axis.text(1.26, top, "mean", **heads)
    axis.text(1.74, top, "range", **heads)


def _handles(kinds: Sequence[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    marks = [Line2D([], [], **_style(kind), label=KINDS[kind]) for kind in kinds]
    return [*marks, Line2D([], [], color=RULE, linewidth=1.4, label=RANGE)]


if __name__ == "__main__":
    draw(json.loads(FILE.read_text())["rows"], FIGURE)
