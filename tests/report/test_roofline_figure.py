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
from charts import chart, entry, mixed, product
from contrast import contrast

from asmtune.base.errors import MissingPackageError
from asmtune.report.roofline.document import MOST_LABELS, labels
from asmtune.report.roofline.figure import COLOURS, INK, Drawing, Window, draw, points_of
from asmtune.studies.roofline.points import Chart, WorkCounts

pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[figures]'")
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
GROUNDS = {"white": "#ffffff", "GitHub's dark": "#0d1117"}


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
    (title,) = [text for text in shown if text.startswith("H200: 4 launches")]
    assert "~: by a prediction" in title
    assert "on the left edge those without FLOPs" in title
    root = ET.fromstring(draw(mixed(), "svg"))
    named = root.find(f"{SVG}title")
    assert named is not None
    assert (named.text or "").startswith("Roofline of H200: 4 launches")


def test_axes_of_few_decades() -> None:
    """A copy alone spans less than two: the numbers between are plain, as those of decades are."""
    alone = chart([entry("copy", WorkCounts("fp32", 0.0, 0.0, 4e8), (110.0, 100.0))])
    shown = texts(draw(alone, "svg"))
    assert not [text for text in shown if "$" in text]
    assert {"5", "10", "20", "50"} <= set(shown)


def test_it_reads_on_light_and_on_dark() -> None:
    """Every colour of the SVG stands out from both grounds, and nothing covers the ground."""
    content = draw(mixed(), "svg").decode()
    used = set(re.findall(r"#[0-9a-fA-F]{6}\b", content)) - {"#000000"}
    assert used <= {INK, *COLOURS}
    for ground in GROUNDS.values():
        assert contrast(INK, ground) >= 4
        assert all(contrast(colour, ground) >= 3 for colour in COLOURS)
    # Black is what markers are defined with, and is overruled where they are used.
    assert not re.search(r"fill: ?#(?:ffffff|FFFFFF)", content)
    image = Image.open(io.BytesIO(draw(mixed(), "png")))
    assert image.size[0] > 1500
    assert image.convert("RGBA").getpixel((0, 0))[3] == 0


def test_equal_charts_make_equal_files() -> None:
    """Nothing of the hour or of chance is in an SVG."""
    assert draw(mixed(), "svg") == draw(mixed(), "svg")


def test_labels_do_not_overlap() -> None:
    """Twelve launches close together: no two names share a pixel, and none covers a marker."""
    close = [
        entry(f"kernel_{i}", product(1e11 * (1 + i / 10)), (300.0 + i, 200.0 + 3 * i))
        for i in range(12)
    ]
    figure = Figure(figsize=(10.5, 6.4), dpi=72)
    FigureCanvasAgg(figure)
    Drawing(figure, chart(close), COLOURS, INK).draw()
    (axes,) = figure.axes
    boxes = [t.get_window_extent() for t in axes.texts if t.get_text().startswith("kernel_")]
    assert len(boxes) == 12
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[place + 1 :])
    made = chart(close)
    window = Window.of(made)
    for shown in points_of(made):
        x, y = axes.transData.transform(window.place(shown))
        assert not any(b.x0 < x < b.x1 and b.y0 < y < b.y1 for b in boxes)


def test_what_has_no_intensity_stands_on_an_edge() -> None:
    """A copy is as far under DRAM's line as its bytes a second are under DRAM's rate."""
    made = mixed()
    window = Window.of(made)
    copy = made.entries[3].after
    x, y = window.place(copy)
    assert window.left < x < window.left * 1.2
    dram = next(roof.rate for roof in made.roofs if roof.name == "DRAM")
    assert y / (x * dram) == pytest.approx(4e8 / 100e-6 / dram)
    for shown in points_of(made):
        x, y = window.place(shown)
        assert window.left < x < window.right
        assert window.bottom < y < window.top


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
