"""Figure of the speedups of a results file.

    python -m benchmarks.aibench8.figure [RESULTS] [--output FOLDER]

Writes a PNG with the name of the results. Needs matplotlib (`pip install '.[figures]'`),
and no GPU. Bars lie in groups by kernel, and begin at 0; lines on them are the ranges of
`summary.speedups`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asmtune.report.figures import COLOURS, INK, RULE, WIDTH, fitted_legend, look, saved
from benchmarks.aibench8.summary import BARS
from benchmarks.harness import RESULTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {
    "full": "as tuned by asmtune, effort balanced",
    "dispatch_off": "launched with the default configs in place of the tuned ones",
    "contract_off": "tuned without contracts on what divides sizes and addresses",
    "asm_off": "tuned, but configs picked at random, not by their assembly",
}
"""The legend's words for each of `BARS`."""

MEAN = "geometric mean"
PARITY = "the plain, untuned Triton kernel: 1"
_BAR = 11.0
"""Points of type from one bar to the next; groups stand 0.8 bars apart."""

_LEFT, _RIGHT, _BOTTOM = 108.0, 12.0, 40.0


def draw(content: Mapping[str, Any], path: Path) -> None:
    """Draw the content of a results file as a PNG."""
    with look():
        path.write_bytes(saved(drawn(content), "png"))


def drawn(content: Mapping[str, Any]) -> Figure:
    """Draw bars below a legend that names them."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    tall = _BAR * (len(BARS) + 0.8) * len(_groups(content))
    across, up = 72 * WIDTH, _BOTTOM + tall + 14 * (len(BARS) + 2) + 36
    figure = Figure(figsize=(WIDTH, up / 72))
    panel = (_LEFT / across, _BOTTOM / up, (across - _LEFT - _RIGHT) / across, tall / up)
    draw_on(figure.add_axes(panel), content)
    handles: list[Any] = [
        Patch(color=colour, label=NAMES[bar]) for bar, colour in zip(BARS, COLOURS, strict=False)
    ]
    handles.append(Line2D([], [], color=INK, linewidth=1.2, label="range of what was measured"))
    handles.append(Line2D([], [], color=RULE, linewidth=1.2, linestyle="--", label=PARITY))
    place = {"loc": "lower left", "bbox_to_anchor": (8 / across, (_BOTTOM + tall + 8) / up)}
    fitted_legend(figure, handles, 0, **place)
    device = content["meta"].get("device", "")
    title = f"AI-Bench8 on an {device}, CUDA graphs" if device else "AI-Bench8, CUDA graphs"
    figure.text(8 / across, 1 - 8 / up, title, va="top", weight="bold", size=11)
    return figure


def _groups(content: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """List the bars by kernel, and the geometric means after them."""
    by_kernel = {name: bars for name, bars in content["summary"]["speedup"].items() if bars}
    means = {bar: {"speedup": v} for bar, v in content["summary"]["geometric_mean"].items()}
    return {**by_kernel, **({MEAN: means} if means else {})}


def draw_on(axis: Any, content: Mapping[str, Any]) -> None:
    """Draw groups of bars by kernel, from the top, and the geometric means after them."""
    groups = _groups(content)
    width = 1 / (len(BARS) + 0.8)
    tops = [f.get("most", f["speedup"]) for bars in groups.values() for f in bars.values()]
    axis.set_xlim(0.0, 1.12 * max([1.0, *tops]))
    axis.set_ylim(len(groups) - 0.5, -0.5)
    axis.axvline(1.0, color=RULE, linewidth=1.2, linestyle="--", zorder=1)
    for place, (bar, colour) in enumerate(zip(BARS, COLOURS, strict=False)):
        there = [(y, bars[bar]) for y, bars in enumerate(groups.values()) if bar in bars]
        at = [y + (place - (len(BARS) - 1) / 2) * width for y, _ in there]
        lengths = [figures["speedup"] for _, figures in there]
        axis.barh(at, lengths, 0.9 * width, color=colour, label=NAMES[bar], zorder=2)
        for y, (_, figures) in zip(at, there, strict=True):
            if "least" in figures:
                ends = [figures["least"], figures["most"]]
                axis.plot(ends, [y, y], color=INK, linewidth=1.2, zorder=3)
            _number(axis, y, figures)
    axis.set_yticks(range(len(groups)), list(groups))
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("times the speed of the untuned kernel")


def _number(axis: Any, y: float, figures: Mapping[str, float]) -> None:
    """Write the speedup beside its bar and range, and never on the line at 1."""
    end = figures.get("most", figures["speedup"])
    style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8.5}
    text = axis.annotate(f"{figures['speedup']:.2f}", (end, y), (4, 0), **style)
    extent = text.get_window_extent()
    line = axis.transData.transform((1.0, y))[0]
    if extent.x0 - 3 < line < extent.x1 + 3:
        text.xy = (1.0, y)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the committed results, or a given file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aibench8.figure")
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS / "aibench8.json")
    parser.add_argument("--output", type=Path, help="folder; default: where the results are")
    options = parser.parse_args(arguments)
    folder = options.output or options.results.parent
    if not options.results.is_file():
        parser.error(
            f"there is no file {options.results}; `python -m benchmarks.aibench8` makes it"
        )
    path = folder / f"{options.results.stem}.png"
    draw(json.loads(options.results.read_text()), path)
    print(path.name)


if __name__ == "__main__":
    main()
