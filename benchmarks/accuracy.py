"""Tables of docs/howto/accuracy.md.

    TRITON_INTERPRET=1 python -m benchmarks.accuracy

Needs no GPU. Measures softmax by dtype under Triton's interpreter, and FP8 round trips by the
granularity of their scales. Then 200 unchanged runs of the latter are judged by the limits of the
first, the alarms are counted, and one more run reads one channel with twice its scale. Writes
benchmarks/results/accuracy.json, and the count and the Markdown of the last check into the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

import asmtune
from asmtune.base.json_codec import to_json
from asmtune.workshop.regression.accuracy_guard import judge, limits_of
from asmtune.workshop.regression.accuracy_run import AccuracyRequest, AccuracyRun
from asmtune.workshop.regression.accuracy_subject import load_subject
from asmtune.workshop.regression.check_page import check_markdown
from benchmarks.harness import between, laid_out, table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "accuracy.json"
PAGE = ROOT / "docs" / "howto" / "accuracy.md"
SCALES = "examples/fp8_scales.py"
GROUPS = (256, 128, 64, 32, 16)
RUNS = 200
OUTLIERS = (1, 20)
TABLE = ("<!-- granularity -->\n", "<!-- end of granularity -->\n")
CHECK = ("<!-- guard -->\n", "<!-- end of guard -->\n")


def dtypes() -> AccuracyRun:
    """Measure softmax by the dtype of its input."""
    variants = {"in fp16": "dtype=fp16", "in bf16": "dtype=bf16"}
    shape = {"rows": 256, "cols": 512}
    return asmtune.accuracy("softmax", shape=shape, variants=variants)


def granularity() -> AccuracyRun:
    """Measure round trips through e4m3 by the granularity of the scales."""
    variants = {"per_channel": "per_channel"}
    variants |= {f"1 x {size}": f"per_group(group={size})" for size in GROUPS}
    where = f"{ROOT / SCALES}:per_tensor"
    return asmtune.accuracy(where, variants=variants)


def document(run: AccuracyRun) -> str:
    """Tabulate what a scale costs and brings."""
    lines = []
    for row in run.rows:
        stats = row.stats
        errors = (stats.rms_share, stats.mean_rel, stats.p50, stats.p99, stats.p999)
        texts = (f"{value:.3g}" for value in (*errors, 1 - stats.cosine))
        lines.append([row.name.replace("_", " "), *texts])
    return table(("scales", "RMS share", "mean", "p50", "p99", "p99.9", "1 - cosine"), lines)


def doubled(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Read one of 64 channels with twice its scale."""
    result = load_subject(f"{ROOT / SCALES}:per_channel", None, None).function(x)
    result["y"][:, 3] *= 2
    return dict(result)


@dataclass(frozen=True)
class Alarms:
    """Outcomes of unchanged runs under the limits of the first, all of whose alarms are false.

    Attributes:
        outliers: how many times as large one channel of 64 is in the runs, each of its own seed.
        runs: without a fault, the first included.
        alarms: those that broke a limit.
        largest: largest error over its limit.
        found: True if the run after them, with a fault, was an alarm.
    """

    outliers: int
    runs: int
    alarms: int
    largest: float
    found: bool


def guarded(outliers: int) -> tuple[Alarms, str]:
    """Judge runs by the limits of the first, and one with a fault; return its Markdown too."""
    shape = {"rows": 64, "cols": 64, "outliers": outliers}
    subject = load_subject(f"{ROOT / SCALES}:per_channel", shape, None)
    request = AccuracyRequest.of(subject, {}, "fp64")
    faulty = replace(request, variants=(replace(request.variants[0], function=doubled),))
    limits = limits_of(request.run("cpu", 0))
    checks = [judge(request.run("cpu", seed), limits) for seed in range(1, RUNS)]
    worse = sum(check.outcome == "worse" for check in checks)
    largest = max(one.ratio or 0.0 for check in checks for one in check.findings)
    last = judge(faulty.run("cpu", RUNS), limits)
    alarms = Alarms(outliers, RUNS, worse, round(largest, 3), last.outcome == "worse")
    return alarms, check_markdown(replace(last, run=f"run {RUNS + 1}"))


def alarm_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Tabulate false alarms."""
    columns = {
        "outliers": "{outliers} times",
        "runs without a fault": "{runs}",
        "alarms": "{alarms}",
        "largest error by its limit": "{largest:.0%}",
        "the fault": "{fault}",
    }
    faults = ({"fault": "found" if row["found"] else "not found"} for row in rows)
    return laid_out(columns, ({**row, **fault} for row, fault in zip(rows, faults, strict=True)))


def guard_section(content: Mapping[str, Any]) -> str:
    """Write what the page says of the guard, from the results."""
    markdown = f"The Markdown of the last check:\n\n```text\n{content['check']}\n```"
    return f"\n{alarm_table(content['guard'])}\n\n{markdown}\n\n"


def main() -> None:
    """Write results and Markdown."""
    runs = {"dtypes": dtypes(), "granularity": granularity()}
    guards = [guarded(times) for times in OUTLIERS]
    content: dict[str, Any] = {name: to_json(run) for name, run in runs.items()}
    content |= {"guard": [asdict(alarms) for alarms, _ in guards], "check": guards[0][1]}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")
    page = PAGE.read_text()
    page = between(page, *TABLE, f"\n{document(runs['granularity'])}\n\n", PAGE.name)
    page = between(page, *CHECK, guard_section(content), PAGE.name)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
