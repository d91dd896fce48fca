"""Roofline of an H200 with the kernels' shipped configs.

    python -m benchmarks.roofline [--measure]

Writes `benchmarks/results/roofline.json` and `docs/images/roofline.svg`. Tuned times are those of
the records in `cache/`; the default's is among the fastest that a record keeps, or else predicted,
and the picture says which. With --measure, on an H200, both are timed now.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from asmtune.base.settings import Settings
from asmtune.core.hardware.shipped import load_target
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.report.roofline.document import chart_json
from asmtune.report.roofline.figure import draw
from asmtune.studies.roofline.subjects import RooflineRequest
from asmtune.studies.roofline.survey import PairClock, Survey, check_gpu
from benchmarks.provenance import RESULTS, write

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

FIGURE = Path(__file__).parents[1] / "docs" / "images" / "roofline.svg"


def main() -> None:
    """Write the document and the picture."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--measure", action="store_true")
    measure = parser.parse_args().measure
    target, settings = load_target("H200"), Settings.from_environment()
    if measure:
        check_gpu(target)
    # Whoever runs this has a store of his own, which nobody else has.
    shipped = replace(settings, store_url=str(settings.cache_dir / "none.sqlite"))
    subjects = [
        subject
        for kernel, shapes in LAUNCHES.items()
        for subject in RooflineRequest([kernel], shapes).subjects(target, shipped)
    ]
    funnel = Funnel(target, make_scorer("roofline"), settings)
    chart = Survey(funnel, PairClock() if measure else None).chart(subjects)
    for name, why in chart.failures:
        print(f"{name}: {why}")
    write(RESULTS / "roofline.json", json.loads(chart_json(chart)))
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    FIGURE.write_bytes(draw(chart, "svg"))


if __name__ == "__main__":
    main()
