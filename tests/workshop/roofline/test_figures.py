"""The figures of the docs: what stands in them, what touches what, and their colours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asmtune.workshop.roofline import figure as roofline_figure
from asmtune.workshop.roofline.document import chart_json
from asmtune.workshop.roofline.figure_style import DARK, GROUND, look, saved
from benchmarks import roofline as roofline_benchmark
from benchmarks.kernels import document
from benchmarks.kernels import figure as kernels_figure
from tests.figure_checks import check_axes, check_colours, check_texts, legend_of

pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[figures]'")

MOST_BYTES = 200_000


def kernels() -> Any:
    """docs/kernels.svg."""
    return kernels_figure.drawn(document.results()["rows"])


def roofline() -> Any:
    """docs/images/roofline.svg."""
    committed = json.loads(roofline_benchmark.DOCUMENT.read_text())
    return roofline_figure.drawn(roofline_benchmark.chart_of(committed))


FIGURES: dict[str, tuple[Callable[[], Any], Path]] = {
    "kernels": (kernels, document.FIGURE),
    "roofline": (roofline, roofline_benchmark.FIGURE),
}

LEGENDS = {
    "kernels": {*kernels_figure.KINDS.values(), kernels_figure.RANGE},
    "roofline": {
        *("DRAM, 4.8 TB/s", "L2, 9.7 TB/s", "67 TFLOP/s fp32 cores", "measured"),
        *("990 TFLOP/s fp16, bf16 tensor", "from the default config to the tuned one"),
    },
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
    # A launch has its kernel's name.
    assert name == "roofline" or not [text for text in shown if "_" in text]


def test_colours_on_both_cards(named: tuple[str, Any]) -> None:
    """Text and marks stand out from the light card and from the dark one."""
    check_colours(named[1])


def words_in(content: bytes) -> list[str]:
    """The texts of an SVG, or the comments that stand for them where they are outlines."""
    found = re.findall(r"<text[^>]*>([^<]*)</text>|<!-- (.*?) -->", content.decode())
    return sorted("".join(one) for one in found)


def test_committed_files(named: tuple[str, Any]) -> None:
    """The committed file is what its script draws, small, with a dark card."""
    name, figure = named
    path = FIGURES[name][1]
    content = path.read_bytes()
    assert len(content) < MOST_BYTES
    with look(text=b"<text" in content):
        assert words_in(saved(figure, "svg")) == words_in(content)
    assert set(re.findall(r"#[0-9a-f]{6}\b", content.decode())) <= {*DARK, *DARK.values()}
    assert b"@media (prefers-color-scheme: dark)" in content
    assert f'[style*="fill: {GROUND}"]{{fill:{DARK[GROUND]}!important}}'.encode() in content


def test_kinds_of_vendors_have_colours_of_their_own() -> None:
    """A vendor's library, a PyTorch function and eager PyTorch differ in colour and in marker."""
    styles = [kernels_figure._style(kind) for kind in kernels_figure.KINDS]
    assert len({style["color"] for style in styles}) == len(styles)
    assert len({style["marker"] for style in styles}) == len(styles)
    assert kernels_figure._kind("matmul") == "vendor library"
    assert kernels_figure._kind("attention_backward") == "vendor library"
    assert kernels_figure._kind("rope") == "eager PyTorch"


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
