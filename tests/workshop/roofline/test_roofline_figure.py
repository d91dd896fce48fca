"""The picture of a roofline: what it shows, on light and dark ground, and what it must not do."""

from __future__ import annotations

import io
import json
import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from PIL import Image

from asmtune.base.errors import MissingPackageError
from asmtune.predict.roofs import WorkCounts
from asmtune.report.figures import DARK, GROUND, look
from asmtune.workshop.roofline.chart import Chart
from asmtune.workshop.roofline.document import MOST_LABELS, labels
from asmtune.workshop.roofline.figure import Window, draw, drawn, place_of, plotted, points_of
from tests.charts import chart, entry, mixed, product
from tests.figure_checks import check_axes, check_colours, check_texts, legend_of

pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[figures]'")

ROOT = Path(__file__).parents[3]
SVG = "{http://www.w3.org/2000/svg}"


def texts(content: bytes) -> list[str]:
    """All text of an SVG."""
    return ["".join(node.itertext()) for node in ET.fromstring(content).iter(f"{SVG}text")]


def test_what_the_picture_says() -> None:
    """Launches, speed-ups, roofs with their rates, the legend and the notes are text in the SVG."""
    shown = texts(draw(mixed(), "svg"))
    assert "matmul M=4096 ~1.75x" in shown
    assert "matmul M=1024 ~1.67x" in shown
    assert "softmax 1.12x" in shown
    assert "copy ~1.10x" in shown
    assert "DRAM, 4.8 TB/s" in shown
    assert "L2, 9.7 TB/s" in shown
    assert "990 TFLOP/s fp16 tensor" in shown
    assert "67 TFLOP/s fp32 cores" in shown
    assert {"measured", "predicted by the model"} <= set(shown)
    title = " ".join(shown)
    assert "Roofline of H200" in shown
    assert "4 launches; ~: by a prediction" in title
    assert "those without FLOPs below, at their bytes a second" in title
    assert "without FLOPs: bytes a second, TB/s" in shown
    root = ET.fromstring(draw(mixed(), "svg"))
    named = root.find(f"{SVG}title")
    assert named is not None
    assert (named.text or "").startswith("Roofline of H200: 4 launches")


def test_axes_of_few_decades() -> None:
    """An axis of less than two has plain numbers between those of decades."""
    alone = chart([entry("fused", WorkCounts("fp32", 0.0, 4e8, 4e7), (110.0, 100.0))])
    shown = texts(draw(alone, "svg"))
    assert not [text for text in shown if "$" in text]
    assert {"5", "10", "20", "50"} <= set(shown)


def test_it_reads_on_light_and_on_dark() -> None:
    """The figure has a card; every colour has one for the dark card, and both stand out."""
    with look():
        check_colours(drawn(mixed()))
    content = draw(mixed(), "svg").decode()
    used = set(re.findall(r"#[0-9a-fA-F]{6}\b", content)) - {"#000000"}
    assert used <= {*DARK, *DARK.values()}
    assert "@media (prefers-color-scheme: dark)" in content
    # Black is what markers are defined with, and is overruled where they are used.
    assert f"fill: {GROUND}" in content
    image = Image.open(io.BytesIO(draw(mixed(), "png")))
    assert image.size[0] > 1200
    assert image.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)


def test_equal_charts_make_equal_files() -> None:
    """Nothing of the hour or of chance is in an SVG."""
    assert draw(mixed(), "svg") == draw(mixed(), "svg")


def check(made: Chart) -> list[str]:
    """Check a chart's figure; its texts."""
    with look():
        figure = drawn(made)
        check_texts(figure)
        check_axes(figure)
    return texts(draw(made, "svg"))


def test_labels_touch_nothing() -> None:
    """Twelve launches close together: each name is there, and none lies on anything."""
    close = [
        entry(f"kernel_{i}", product(1e11 * (1 + i / 10)), (300.0 + i, 200.0 + 3 * i))
        for i in range(12)
    ]
    shown = check(chart(close))
    assert sum(text.startswith("kernel_") for text in shown) == 12


@pytest.mark.slow(seconds=30)
@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    st.lists(
        st.tuples(
            st.floats(7, 12), st.floats(5, 9), st.floats(0.5, 5), st.text("abcdef_", min_size=1)
        ),
        min_size=1,
        max_size=25,
    )
)
def test_labels_of_any_launches(launches: list[tuple[float, float, float, str]]) -> None:
    """Wherever points lie and whatever their names: no text touches another, a line or a mark."""
    made = chart(
        [
            entry(name, product(10**flops, 10**size), (1.7 * 10**us, 10**us))
            for flops, size, us, name in launches
        ]
    )
    shown = check(made)
    assert sum(name in shown for name in labels(made.entries)) == len(launches)


def test_points_on_one_another() -> None:
    """Points that cover one another share a label of their numbers; a list says whose they are."""
    made = chart([entry(f"kernel_{i}", product(), (300.0, 200.0)) for i in range(12)])
    shown = check(made)
    assert sum(text.startswith("kernel_") for text in shown) == 12
    assert "1-12" in shown
    assert {str(n) for n in range(1, 13)} <= set(shown)


def test_long_names() -> None:
    """Names longer than the figure is wide are cut in the list and broken beside the bars."""
    long = "a_kernel_" * 12
    copy = WorkCounts("fp32", 0.0, 0.0, 4e8)
    shown = check(chart([entry(long, product(), (300.0, 200.0)), entry(long, copy, (9.0, 8.0))]))
    assert "1" in shown
    assert any(text.startswith("a_kernel_") for text in shown)


def test_launches_without_bytes() -> None:
    """They stand in rows of their own, by FLOP/s under the roofs of their cores."""
    shown = check(chart([entry("spin", product(1e11, 0.0), (300.0, 200.0))]))
    assert "without bytes: FLOPs a second, TFLOP/s" in shown
    assert "990 TFLOP/s fp16 tensor" in shown
    assert "FLOPs a byte read or written" not in shown


def test_copies_alone() -> None:
    """Without a launch that has an intensity there is no panel of FLOP/s, nor a roof of cores."""
    copy = WorkCounts("fp32", 0.0, 0.0, 4e8)
    shown = check(chart([entry(f"copy{i}", copy, (110.0, 100.0 - i)) for i in range(3)]))
    assert "without FLOPs: bytes a second, TB/s" in shown
    assert "FLOPs a byte read or written" not in shown
    assert "DRAM, 4.8 TB/s" in shown


def test_what_is_under_the_roofs() -> None:
    """Points with an intensity lie within the axes, at their FLOPs a byte and FLOP/s."""
    made = mixed()
    window = Window.of(made)
    assert [one.kernel for one in plotted(made)] == ["matmul", "matmul", "softmax"]
    for one in plotted(made):
        for point in points_of(one):
            x, y = place_of(point)
            assert (x, y) == (point.work.flops / point.work.bytes, point.flops_per_s)
            assert window.left < x < window.right
            assert window.bottom < y < window.top


def test_the_legend() -> None:
    """Roofs and marks are named outside of the panels."""
    with look():
        shown = legend_of(drawn(mixed()))
    assert {"DRAM, 4.8 TB/s", "67 TFLOP/s fp32 cores", "measured"} <= shown
    assert "from the default config to the tuned one" in shown


@pytest.mark.slow
def test_awkward_names() -> None:
    """Names with dollars, tags and ampersands come out as they are, not as formulas or tags."""
    name = r"a$x_1$<b>&\frac"
    assert f"{name} ~1.75x" in texts(draw(chart([entry(name, product(), (350.0, 200.0))]), "svg"))


@pytest.mark.slow
def test_more_launches_than_labels() -> None:
    """What has no label any more is told."""
    many: Chart = chart(
        [entry(f"k{i}", product(1e11 + i * 1e10), (300.0, 200.0)) for i in range(MOST_LABELS + 5)]
    )
    shown = texts(draw(many, "svg"))
    assert sum(text.startswith("k") for text in shown) == MOST_LABELS
    assert any("5 without a label" in text for text in shown)


def test_guesses_are_marked() -> None:
    """A launch whose loop only memory ends has a question mark, which the title explains."""
    counts = replace(product(), assumed=("line 3: scf.for: loaded from memory; 16 trips",))
    made = chart([entry("bounded", counts, (350.0, 200.0))])
    assert labels(made.entries) == ["bounded? ~1.75x"]
    assert any("?: counts rest on a guess" in text for text in texts(draw(made, "svg")))


def test_the_committed_picture() -> None:
    """The picture in the docs has a label for each launch of the committed document."""
    document = json.loads((ROOT / "benchmarks/results/roofline.json").read_text())
    shown = texts((ROOT / "docs/images/roofline.svg").read_bytes())
    kernels = [entry["kernel"] for entry in document["entries"]]
    assert len(kernels) >= 10
    for kernel in kernels:
        named = [text for text in shown if text.partition(" ")[0].rstrip("?") == kernel]
        assert len(named) == kernels.count(kernel)
    assert document["target"] == "H200"
    assert any(entry["speedup_is"] == "measured" for entry in document["entries"])


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra, and what works without it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match=r"pip install '\.\[figures\]' in a clone.*json"):
        draw(mixed(), "svg")
