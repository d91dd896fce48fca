"""The picture of a roofline: what it shows."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from asmtune.base.errors import MissingPackageError
from asmtune.workshop.roofline.chart import Chart
from asmtune.workshop.roofline.document import labels
from asmtune.workshop.roofline.figure import draw, drawn, place_of, plotted, points_of
from asmtune.workshop.roofline.figure_style import look
from tests.charts import chart, entry, mixed, product

pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[figures]'")

SVG = "{http://www.w3.org/2000/svg}"


def texts(content: bytes) -> list[str]:
    """All text of an SVG."""
    return ["".join(node.itertext()) for node in ET.fromstring(content).iter(f"{SVG}text")]


def test_what_the_picture_says() -> None:
    """Launches, speed-ups, roofs with their rates, signs and the notes are text in the SVG."""
    content = draw(mixed(), "svg")
    shown = texts(content)
    assert {"matmul M=4096 ~1.75x", "matmul M=1024 ~1.67x", "softmax 1.12x"} <= set(shown)
    assert {"DRAM, 4.8 TB/s", "L2, 9.7 TB/s", "990 TFLOP/s fp16 tensor"} <= set(shown)
    assert {"67 TFLOP/s fp32 cores", "measured", "predicted by the model"} <= set(shown)
    assert "from the default config to the tuned one" in shown
    assert "Roofline of H200" in shown
    assert "4 launches; ~: by a prediction" in " ".join(shown)
    assert "those without FLOPs are in the table alone" in " ".join(shown)
    assert not [text for text in shown if "copy" in text]
    named = ET.fromstring(content).find(f"{SVG}title")
    assert named is not None
    assert (named.text or "").startswith("Roofline of H200: 4 launches")


def test_what_is_under_the_roofs() -> None:
    """Points with an intensity lie within the axes, at their FLOPs a byte and FLOP/s."""
    made = mixed()
    with look():
        (axes,) = drawn(made).axes
    assert [one.kernel for one in plotted(made)] == ["matmul", "matmul", "softmax"]
    drawn_at = {tuple(xy) for line in axes.lines for xy in line.get_xydata()}
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    for one in plotted(made):
        for point in points_of(one):
            x, y = place_of(point)
            assert (x, y) == (point.work.flops / point.work.bytes, point.flops_per_s)
            assert (x, y) in drawn_at
            assert left < x < right
            assert bottom < y < top
    # DRAM's roof meets that of the fastest cores where their rates say.
    assert (9.895e14 / 4.8e12, 9.895e14) in drawn_at


def test_guesses_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch whose loop only memory ends has a question mark, which the title explains.

    Names with dollars, tags and ampersands come out as they are.
    """
    counts = replace(product(), assumed=("line 3: scf.for: loaded from memory; 16 trips",))
    name = r"a$x_1$<b>&\frac"
    made: Chart = chart([entry(name, counts, (350.0, 200.0))])
    assert labels(made.entries) == [f"{name}? ~1.75x"]
    shown = texts(draw(made, "svg"))
    assert f"{name}? ~1.75x" in shown
    assert any("?: counts rest on a guess" in text for text in shown)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match="figures"):
        draw(made, "svg")
