"""Roofline of an H200 with the kernels' shipped configs.

    python -m benchmarks.roofline

Needs no GPU. Writes `benchmarks/results/roofline.json` and `docs/images/roofline.svg`. Tuned times
are those of the records in `cache/`; the default's is among the fastest that a record keeps, or
else predicted, and the picture says which.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from asmtune.base.settings import Settings
from asmtune.core.hardware.shipped import load_target
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.workshop.roofline.chart import Chart
from asmtune.workshop.roofline.document import chart_json
from asmtune.workshop.roofline.figure import draw
from asmtune.workshop.roofline.subjects import RooflineRequest
from asmtune.workshop.roofline.survey import Survey
from benchmarks.harness import RESULTS, write

LAUNCHES = {
    "matmul": ("batch=1,M=4096,N=4096,K=4096", "batch=1,M=16,N=4096,K=4096"),
    "linear": ("batch=1,M=4096,N=3072,K=768", "batch=1,M=256,N=3072,K=768"),
    "attention": (),
    "conv2d": (),
    "softmax": ("rows=8192,cols=4096",),
    "layernorm": ("rows=1151,cols=8192",),
    "cross_entropy": (),
    "gelu": (),
    "rope": (),
    "correlation": (),
}
"""Shapes by kernel; the module's first where none is given."""

DOCUMENT = RESULTS / "roofline.json"
FIGURE = Path(__file__).parents[1] / "docs" / "images" / "roofline.svg"


def surveyed() -> Chart:
    """Look at all launches, with the times of the records."""
    target, settings = load_target("H200"), Settings.from_environment()
    # Whoever runs this has a store of his own, which nobody else has.
    shipped = replace(settings, store_url=str(settings.cache_dir / "none.sqlite"))
    subjects = [
        subject
        for kernel, shapes in LAUNCHES.items()
        for subject in RooflineRequest([kernel], shapes).subjects(target, shipped)
    ]
    funnel = Funnel(target, make_scorer("roofline"), settings)
    chart = Survey(funnel).chart(subjects)
    for name, why in chart.failures:
        print(f"{name}: {why}")
    return chart


def main() -> None:
    """Write the document and its picture."""
    chart = surveyed()
    write(DOCUMENT, json.loads(chart_json(chart)))
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    FIGURE.write_bytes(draw(chart, "svg"))


if __name__ == "__main__":
    main()
