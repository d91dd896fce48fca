"""Tables of docs/howto/accuracy.md.

    TRITON_INTERPRET=1 python -m benchmarks.accuracy

Needs no GPU. Measures softmax by dtype under Triton's interpreter, and FP8 round trips by the
granularity of their scales. Writes benchmarks/results/accuracy.json, and the table into the page.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import asmtune
from asmtune.base.json_codec import to_json
from asmtune.workshop.regression.accuracy_run import AccuracyRun
from benchmarks.harness import between, table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "accuracy.json"
PAGE = ROOT / "docs" / "howto" / "accuracy.md"
SCALES = "examples/fp8_scales.py"
GROUPS = (256, 128, 64, 32, 16)
TABLE = ("<!-- granularity -->\n", "<!-- end of granularity -->\n")


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


def main() -> None:
    """Write results and Markdown."""
    runs = {"dtypes": dtypes(), "granularity": granularity()}
    content: dict[str, Any] = {name: to_json(run) for name, run in runs.items()}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")
    page = PAGE.read_text()
    page = between(page, *TABLE, f"\n{document(runs['granularity'])}\n\n", PAGE.name)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
