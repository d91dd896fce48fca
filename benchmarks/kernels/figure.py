"""Figure of docs/kernels.md: each kernel's speed over the vendor's function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.kernels.backward import with_backward
from benchmarks.kernels.rows import summary

MOST = 6.0
"""Where the axis ends: against eager code of many launches a kernel may be tens of times as fast,
and next to that bar no other could be read."""


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw a bar a kernel from 0 to its geometric mean, with the range of its rows.

    The two kernels of attention's backward pass share one bar.

    Args:
        rows: the table's rows.
        path: path of the SVG.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = with_backward(rows)
    means = summary(rows)["over_vendor_by_kernel"]
    names = sorted(means, key=lambda name: float(means[name]["geometric_mean"]))
    # Text stays text, and equal results make equal files.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "asmtune", "font.size": 9}):
        figure = Figure(figsize=(7.5, 1.0 + 0.24 * len(names)), layout="constrained")
        axis = figure.subplots()
        for place, name in enumerate(names):
            _bar(axis, place, means[name], [r["over_vendor"] for r in rows if r["kernel"] == name])
        axis.axvline(1.0, color="black", linewidth=1)
        axis.set_yticks(range(len(names)), names)
        axis.set(xlim=(0, MOST), xlabel="speed-up over the vendor (1: as fast), all shapes")
        axis.grid(axis="x", alpha=0.3)
        axis.set_axisbelow(True)
        figure.savefig(path, metadata={"Date": None})


def _bar(axis: Any, place: int, row: Mapping[str, Any], factors: Sequence[float]) -> None:
    mean = row["geometric_mean"]
    axis.barh(place, min(mean, MOST), height=0.7, color="tab:blue" if mean >= 1 else "tab:orange")
    axis.plot([min(factors), min(max(factors), MOST)], [place, place], color="0.25", linewidth=1.2)
    end = min(max(mean, *factors), MOST * 0.93)
    text = f"{mean:.2f}" if mean < MOST else f"{mean:.0f} →"
    axis.text(end + 0.04, place, text, va="center", fontsize=8)
