"""The figures of the docs: what stands in them, what touches what, and their colours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from asmtune.report.figures import DARK, GROUND, look, saved
from asmtune.workshop.regression.check_page import trend
from asmtune.workshop.regression.compare import Terms, compare
from asmtune.workshop.regression.history import HistoryEntry, entry_of, extended
from asmtune.workshop.roofline import figure as roofline_figure
from asmtune.workshop.roofline.document import chart_json
from benchmarks import replay_strategies
from benchmarks import roofline as roofline_benchmark
from benchmarks import trend as trend_benchmark
from benchmarks.aibench8 import figure as aibench8_figure
from benchmarks.false_alarms import recorded
from benchmarks.kernels import document
from benchmarks.kernels import figure as kernels_figure
from benchmarks.provenance import RESULTS
from tests.figure_checks import check_axes, check_colours, check_texts, legend_of

MOST_BYTES = 200_000


def kernels() -> Any:
    """docs/kernels.svg."""
    return kernels_figure.drawn(document.results()["rows"])


def aibench8() -> Any:
    """benchmarks/results/aibench8.png."""
    return aibench8_figure.drawn(json.loads((RESULTS / "aibench8.json").read_text()))


def roofline() -> Any:
    """docs/images/roofline.svg."""
    committed = json.loads(roofline_benchmark.DOCUMENT.read_text())
    return roofline_figure.drawn(roofline_benchmark.chart_of(committed))


def strategies() -> Any:
    """benchmarks/results/replay_strategies.svg."""
    results = json.loads((RESULTS / "replay_strategies.json").read_text())
    return replay_strategies.drawn(results["plans"])


def over_time() -> Any:
    """docs/images/trend.svg."""
    every = trend_benchmark.runs(recorded()[0])
    findings = compare(every[-2], every[-1], Terms()).findings
    history: tuple[HistoryEntry, ...] = ()
    for run in every:
        history = extended(history, entry_of(run))
    return trend(history, [f.subject.identity for f in findings if f.verdict == "slower"])


FIGURES: dict[str, tuple[Callable[[], Any], Path]] = {
    "kernels": (kernels, document.FIGURE),
    "aibench8": (aibench8, RESULTS / "aibench8.png"),
    "roofline": (roofline, roofline_benchmark.FIGURE),
    "strategies": (strategies, RESULTS / "replay_strategies.svg"),
    "trend": (over_time, trend_benchmark.FIGURE),
}

LEGENDS = {
    "kernels": {*kernels_figure.KINDS.values(), kernels_figure.RANGE},
    "aibench8": {*aibench8_figure.NAMES.values(), aibench8_figure.PARITY},
    "roofline": {
        *("DRAM, 4.8 TB/s", "L2, 9.7 TB/s", "67 TFLOP/s fp32 cores", "measured"),
        *("990 TFLOP/s fp16, bf16 tensor", "from the default config to the tuned one"),
    },
    "strategies": {*replay_strategies.CURVES.values(), "asmtune, effort balanced"},
    "trend": {"rows=8192 cols=4096, 70 us", "slower in the last run than in its baseline"},
}


@pytest.fixture(scope="module", params=FIGURES)
def named(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """Each figure by name, drawn from the committed results."""
    with look():
        return request.param, FIGURES[request.param][0]()


@pytest.mark.slow(seconds=2)
def test_texts_touch_nothing(named: tuple[str, Any]) -> None:
    """No text lies on another, on a line or on a mark, and none is small at the page's width."""
    check_texts(named[1])


def test_axes_are_whole(named: tuple[str, Any]) -> None:
    """No bar, whisker or point is cut by the end of an axis."""
    check_axes(named[1])


def test_legends_are_words(named: tuple[str, Any]) -> None:
    """Each series is in a legend by its plain name."""
    name, figure = named
    shown = legend_of(figure)
    assert shown >= LEGENDS[name]
    assert not [text for text in shown if "_" in text]


def test_colours_on_both_cards(named: tuple[str, Any]) -> None:
    """Text and marks stand out from the light card and from the dark one."""
    check_colours(named[1])


def words_in(content: bytes) -> list[str]:
    """The texts of an SVG, or the comments that stand for them where they are outlines."""
    found = re.findall(r"<text[^>]*>([^<]*)</text>|<!-- (.*?) -->", content.decode())
    return sorted("".join(one) for one in found)


def test_committed_files(named: tuple[str, Any]) -> None:
    """The committed file is what its script draws, small, with a dark card if it is an SVG."""
    name, figure = named
    path = FIGURES[name][1]
    content = path.read_bytes()
    assert len(content) < MOST_BYTES
    if path.suffix == ".png":
        across, up = figure.get_size_inches()
        assert Image.open(path).size == pytest.approx((across * 200, up * 200), abs=1)
        return
    with look(text=b"<text" in content):
        assert words_in(saved(figure, "svg")) == words_in(content)
    assert set(re.findall(r"#[0-9a-f]{6}\b", content.decode())) <= {*DARK, *DARK.values()}
    assert b"@media (prefers-color-scheme: dark)" in content
    assert f'[style*="fill: {GROUND}"]{{fill:{DARK[GROUND]}!important}}'.encode() in content


def test_a_trend_of_long_names() -> None:
    """Names of any length, and one run alone: the panels make room, and nothing is touched."""
    every = trend_benchmark.runs(recorded()[0])
    (entry,) = extended((), entry_of(every[0]))
    long = {"softmax": "a_kernel_with_a_name_of_" * 6, "gelu": "short"}
    levels = [
        replace(level, subject=replace(level.subject, kernel=long[level.subject.kernel]))
        for level in entry.levels
        if level.subject.kernel in long
    ]
    with look():
        figure = trend([replace(entry, levels=tuple(levels), label="a long label")], [])
        check_texts(figure)
        check_axes(figure)
    assert "slower in the last run than in its baseline" not in legend_of(figure)


def test_a_chart_is_read_back_whole() -> None:
    """The document that a chart is read from is the one that the chart writes."""
    committed = json.loads(roofline_benchmark.DOCUMENT.read_text())
    chart = roofline_benchmark.chart_of(committed)
    again = json.loads(chart_json(chart))
    for name in ("target", "roofs", "entries", "failures", "versions", "date"):
        assert rounded(again[name]) == rounded(committed[name])


def rounded(value: Any) -> Any:
    """JSON values with numbers of 4 digits: times are written rounded, and rates are not."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
