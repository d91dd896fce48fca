"""Figures and tables of docs/howto/accuracy.md.

    TRITON_INTERPRET=1 python -m benchmarks.accuracy

Needs no GPU. Measures softmax by dtype under Triton's interpreter, and FP8 round trips by the
granularity of their scales. Then 30 runs of the latter pass the guard, the last of which reads one
channel with twice its scale. Writes benchmarks/results/accuracy.json, the pictures
`docs/images/accuracy*.svg`, and the Markdown of the last check into the page.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch

import asmtune
from asmtune.base.json_codec import to_json
from asmtune.report.accuracy import accuracy_figure
from asmtune.report.regression import check_markdown, trend_figure
from asmtune.studies.accuracy.guard import ErrorLimits, Guard
from asmtune.studies.accuracy.run import AccuracyRequest, AccuracyRun
from asmtune.studies.accuracy.subject import load_subject
from asmtune.studies.regression.history import HistoryEntry, extended
from benchmarks.marked import between

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "accuracy.json"
PAGE = ROOT / "docs" / "howto" / "accuracy.md"
IMAGES = ROOT / "docs" / "images"
SCALES = "examples/fp8_scales.py"
GROUPS = (256, 128, 64, 32, 16)
RUNS = 30
TABLE = ("<!-- granularity -->\n", "<!-- end of granularity -->\n")
CHECK = ("<!-- guard -->\n", "<!-- end of guard -->\n")


def dtypes() -> AccuracyRun:
    """Measure softmax by the dtype of its input."""
    variants = {"in fp16": "dtype=fp16", "in bf16": "dtype=bf16"}
    shape = {"rows": 256, "cols": 512}
    return asmtune.accuracy("softmax", shape=shape, inputs="heavy-tailed", variants=variants)


def granularity() -> AccuracyRun:
    """Measure round trips through e4m3 by the granularity of the scales."""
    variants = {"per_channel": "per_channel"}
    variants |= {f"1 x {size}": f"per_group(group={size})" for size in GROUPS}
    where = f"{ROOT / SCALES}:per_tensor"
    return asmtune.accuracy(where, inputs="outlier-channels", variants=variants)


def table(run: AccuracyRun) -> str:
    """Tabulate what a scale costs and brings."""
    lines = ["| scales | how many | RMS share | mean | p50 | p99 | p99.9 | 1 - cosine |"]
    lines.append("|---|" + "---:|" * 7)
    for row in run.rows:
        stats = row.stats
        errors = (stats.rms_share, stats.mean_rel, stats.p50, stats.p99, stats.p999)
        texts = [f"{value:.3g}" for value in (*errors, 1 - stats.cosine)]
        count = row.scales.count if row.scales else 0
        lines.append(f"| {row.name.replace('_', ' ')} | {count} | {' | '.join(texts)} |")
    return "\n".join(lines)


def doubled(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Read one of 64 channels with twice its scale."""
    result = load_subject(f"{ROOT / SCALES}:per_channel", None, None).function(x)
    result["y"][:, 3] *= 2
    return dict(result)


def guarded() -> tuple[str, bytes]:
    """Pass runs by the guard, the last one with a fault; return Markdown and trend."""
    shape = {"rows": 64, "cols": 64}
    subject = load_subject(f"{ROOT / SCALES}:per_channel", shape, None)
    request = AccuracyRequest.of(subject, {}, "fp64", "random")
    faulty = replace(request, variants=(replace(request.variants[0], function=doubled),))
    limits: tuple[ErrorLimits, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    for seed in range(RUNS):
        last = seed == RUNS - 1
        run = (faulty if last else request).run("cpu", seed, f"run {seed + 1}")
        guard = Guard(limits, history, adapts=True)
        check = guard.judge(run)
        assert (check.outcome == "worse") == last
        if not last:
            limits = guard.tightened(run)
        history = extended(history, run.entry)
    worse = [f.identity for f in check.findings if f.verdict == "worse"]
    return check_markdown(check), trend_figure(history, worse, ".svg")


def main() -> None:
    """Write results, pictures and Markdown."""
    runs = {"dtypes": dtypes(), "granularity": granularity()}
    markdown, trend = guarded()
    document = {name: to_json(run) for name, run in runs.items()}
    for run in document.values():
        for row in run["rows"]:
            del row["histogram"]
    RESULTS.write_text(json.dumps({**document, "check": markdown}, indent=1) + "\n")
    (IMAGES / "accuracy.svg").write_bytes(accuracy_figure(runs["dtypes"], "svg"))
    (IMAGES / "accuracy_trend.svg").write_bytes(trend)
    page = PAGE.read_text()
    page = between(page, *TABLE, f"\n{table(runs['granularity'])}\n\n", PAGE.name)
    page = between(page, *CHECK, f"\nIts Markdown:\n\n```text\n{markdown}\n```\n\n", PAGE.name)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
