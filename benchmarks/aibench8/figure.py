"""Figure of the speedups of a results file.

    python -m benchmarks.aibench8.figure [RESULTS] [--output FOLDER]

Writes `aibench8.pdf` and `aibench8.png`. Needs matplotlib (`pip install '.[figures]'`),
and no GPU. Bars are grouped by kernel, and begin at 0; lines on them are the ranges of
`summary.speedups`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.aibench8.summary import BARS
from benchmarks.provenance import RESULTS

COLOURS = ("#1b5e8c", "#e08e2b", "#8fb339", "#b0b7bf")
"""Colours of the bars; they differ in lightness too."""

MEAN = "geo. mean"


def draw(content: Mapping[str, Any], stem: Path) -> list[Path]:
    """Draw the figure as PDF and PNG.

    Args:
        content: the content of a results file.
        stem: path of both files, without a suffix.

    Returns:
        The files written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Equal results make equal files.
    with mpl.rc_context({"font.size": 9, "svg.hashsalt": "asmtune", "pdf.fonttype": 42}):
        figure = Figure(figsize=(9.0, 3.6), layout="constrained")
        draw_on(figure.subplots(), content)
        paths = [stem.with_suffix(".pdf"), stem.with_suffix(".png")]
        figure.savefig(paths[0], metadata={"CreationDate": None})
        figure.savefig(paths[1], dpi=200, metadata={"Software": None})
    return paths


def draw_on(axis: Any, content: Mapping[str, Any]) -> None:
    """Draw groups of bars by kernel, and the geometric means after them."""
    by_kernel = {name: bars for name, bars in content["summary"]["speedup"].items() if bars}
    means = {bar: {"speedup": v} for bar, v in content["summary"]["geometric_mean"].items()}
    groups = {**by_kernel, **({MEAN: means} if means else {})}
    width = 0.8 / len(BARS)
    for place, (bar, colour) in enumerate(zip(BARS, COLOURS, strict=True)):
        there = [(x, bars[bar]) for x, bars in enumerate(groups.values()) if bar in bars]
        at = [x + (place - (len(BARS) - 1) / 2) * width for x, _ in there]
        heights = [figures["speedup"] for _, figures in there]
        axis.bar(at, heights, width, color=colour, label=bar, zorder=2)
        _ranges(axis, [(x, f) for x, (_, f) in zip(at, there, strict=True) if "least" in f])
        for x, (_, figures) in zip(at, there, strict=True):
            _number(axis, x, figures)
    axis.axhline(1.0, color="black", linewidth=0.8, linestyle="--", zorder=3)
    axis.set_xticks(range(len(groups)), list(groups))
    axis.set_ylabel("speedup over the untuned kernel")
    tops = [f.get("most", f["speedup"]) for bars in groups.values() for f in bars.values()]
    axis.set_ylim(0.0, 1.15 * max([1.0, *tops]))
    axis.margins(x=0.01)
    axis.grid(axis="y", alpha=0.3, zorder=0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, ncols=len(BARS), loc="lower left", bbox_to_anchor=(0, 1))
    device = content["meta"].get("device", "")
    axis.set_title(f"AI-Bench8, {device}, CUDA graphs; untuned = 1", loc="right", fontsize=9)


def _ranges(axis: Any, bars: Sequence[tuple[float, Mapping[str, float]]]) -> None:
    for x, figures in bars:
        axis.plot(
            [x, x], [figures["least"], figures["most"]], color="black", linewidth=0.8, zorder=3
        )


def _number(axis: Any, x: float, figures: Mapping[str, float]) -> None:
    """Write the speedup above its bar and range, upright: four of a group do not fit abreast."""
    axis.annotate(
        f"{figures['speedup']:.2f}",
        (x, figures.get("most", figures["speedup"])),
        (0, 3),
        textcoords="offset points",
        ha="center",
        va="bottom",
        rotation=90,
        fontsize=7,
    )


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
    if not folder.is_dir():
        parser.error(f"--output: there is no folder {folder}; make it first")
    try:
        content = json.loads(options.results.read_text())
    except ValueError as error:
        parser.error(f"{options.results} is no JSON: {error}")
    if not isinstance(content, dict) or not {"meta", "summary"} <= content.keys():
        parser.error(f"{options.results} has no meta and summary: it is no file of this experiment")
    for path in draw(content, folder / "aibench8"):
        print(path.name)


if __name__ == "__main__":
    main()
