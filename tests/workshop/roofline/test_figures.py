"""The figures of the docs: their texts, what touches what, and their colours."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from asmtune.workshop.roofline.figure_style import DARK, GROUND, look, saved
from benchmarks.harness import RESULTS
from benchmarks.kernels import figure as kernels_figure
from tests.figure_checks import check_axes, check_colours, check_texts, legend_of

pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[figures]'")

MOST_BYTES = 200_000


@pytest.fixture(scope="module")
def figure() -> Any:
    """docs/kernels.svg, drawn from the committed results."""
    with look():
        return kernels_figure.drawn(json.loads((RESULTS / "kernels.json").read_text())["rows"])


@pytest.mark.slow(seconds=2)
def test_what_is_drawn(figure: Any) -> None:
    """No text touches anything, no axis cuts a point, and colours stand out on both cards."""
    check_texts(figure)
    check_axes(figure)
    check_colours(figure)
    shown = legend_of(figure)
    assert shown >= {*kernels_figure.KINDS.values(), kernels_figure.RANGE}
    assert not [text for text in shown if "_" in text]


def words_in(content: bytes) -> list[str]:
    """The texts of an SVG, or the comments that stand for them where they are outlines."""
    found = re.findall(r"<text[^>]*>([^<]*)</text>|<!-- (.*?) -->", content.decode())
    return sorted("".join(one) for one in found)


def test_committed_files(figure: Any) -> None:
    """The committed file is what its script draws, small, with a dark card."""
    content = kernels_figure.FIGURE.read_bytes()
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
