"""Roofline of an H200 with the kernels' shipped configs.

    python -m benchmarks.roofline [--draw]

Writes `benchmarks/results/roofline.json` and `docs/images/roofline.svg`. Tuned times are those of
the records in `cache/`; the default's is among the fastest that a record keeps, or else predicted,
and the picture says which. With --draw the committed document is drawn as it is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from asmtune.predict.work_counts import WorkCounts
from asmtune.workshop.roofline.chart import Chart, ChartEntry, Load, Point, Roof
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


def chart_of(document: Mapping[str, Any]) -> Chart:
    """Read a chart back from its JSON."""
    roofs = [
        Roof(r["name"], r["kind"], rate, r["source"], r["figure"])
        for r in document["roofs"]
        for rate in (r.get("flops_per_s") or r["bytes_per_s"],)
    ]
    failures = tuple((failure["launch"], failure["error"]) for failure in document["failures"])
    entries = tuple(map(_entry, document["entries"]))
    versions, date = document["versions"], document["date"]
    return Chart(document["target"], tuple(roofs), entries, failures, versions, date)


def _entry(row: Mapping[str, Any]) -> ChartEntry:
    guess = "counts are a guess: "
    assumed = tuple(n.removeprefix(guess) for n in row["notes"] if n.startswith(guess))
    before = None if row["before"] is None else _point(row["before"], assumed)
    same = {name: row[name] for name in ("kernel", "shape", "dtypes", "tuned_by")}
    made, notes = row["tuned_with"], tuple(row["notes"])
    return ChartEntry(
        **same, before=before, after=_point(row["after"], assumed), made=made, notes=notes
    )


def _point(row: Mapping[str, Any], assumed: tuple[str, ...]) -> Point:
    counts = WorkCounts(row["cores"], **row["of_this_config"], assumed=assumed)
    load = Load(row["flops"], row["bytes"])
    time = (row["us"], row["time_is"], row["time_from"])
    predicted = (row["predicted_us"], row["predicted_bottleneck"])
    return Point(Config.from_dict(row["config"]), counts, load, *time, *predicted)


def main() -> None:
    """Write the document and the picture, or the picture of the document."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draw", action="store_true", help="draw the committed document")
    options = parser.parse_args()
    if not options.draw:
        write(DOCUMENT, json.loads(chart_json(surveyed())))
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    FIGURE.write_bytes(draw(chart_of(json.loads(DOCUMENT.read_text())), "svg"))


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


if __name__ == "__main__":
    main()
