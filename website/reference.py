"""The pages that are made from the code: the reference, and a live page of the explorer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import asmtune
from website.blocks import ROOT

ALSO: Final = {
    "How to tune": (
        "asmtune.tuning.options.TuneOptions",
        "asmtune.tuning.options.Choices",
        "asmtune.tuning.options.Effort",
        "asmtune.tuning.request.TuningResult",
        "asmtune.measure.accuracy.Bound",
    ),
    "What a launch does": (
        "asmtune.runtime.options.DecoratorOptions",
        "asmtune.runtime.decorator.reconfigure",
    ),
    "Offline": (
        "asmtune.runtime.offline.prediction.Prediction",
        "asmtune.predict.prune.flow.Funnel",
        "asmtune.predict.score.keep.Keep",
        "asmtune.core.kernel_module.load_kernel_module",
        "asmtune.predict.features.catalog.register",
        "asmtune.predict.features.catalog.register_launch",
    ),
    "Bench runs, checks and rooflines": (
        "asmtune.workshop.regression.run.BenchRun",
        "asmtune.workshop.regression.run.read_run",
        "asmtune.workshop.regression.run.write_run",
        "asmtune.workshop.regression.compare.Check",
        "asmtune.workshop.regression.compare.CheckFinding",
        "asmtune.workshop.roofline.chart.Chart",
        "asmtune.workshop.roofline.chart.ChartEntry",
    ),
    "Records": (
        "asmtune.core.records.verdicts.PruneReport",
        "asmtune.core.records.verdicts.Verdict",
        "asmtune.core.records.verdicts.Features",
        "asmtune.core.records.tuned.TuneRecord",
        "asmtune.core.records.tuned.TuneKey",
        "asmtune.core.records.artifacts.Failure",
    ),
    "Low precision": (
        "asmtune.workshop.lowprec.scaler.Scaler",
        "asmtune.workshop.lowprec.casting",
        "asmtune.workshop.lowprec.fp8_linear",
        "asmtune.workshop.lowprec.layers",
    ),
    "Settings and errors": ("asmtune.base.settings.Settings", "asmtune.base.errors"),
}
"""Names that the public functions take and return, by heading."""


def api_page() -> str:
    """List every public name of `asmtune`, with what it takes and returns."""
    parts = ["# Python", "The names of `asmtune` itself load on first use.", "## asmtune"]
    parts += [_public(name) for name in asmtune.__all__]
    for heading, names in ALSO.items():
        parts += [f"## {heading}", *map(_entry, names)]
    return "\n\n".join(parts) + "\n"


def cli_page() -> str:
    """List every command with its arguments and options, as typer writes them."""
    command = [sys.executable, "-m", "typer", "--app", "app", "asmtune.cli.app"]
    done = subprocess.run(
        [*command, "utils", "docs", "--name", "asmtune"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    # A default such as <list[str]> would be read as a tag.
    text = re.sub(r"^\* `(.*)`", lambda m: f"* `{m[1]}`", done.stdout, flags=re.MULTILINE)
    return text.replace("# `asmtune`\n", "# Commands\n", 1)


def explorer_page() -> str:
    """Make the explorer's page of a few configs.

    They are compiled here, and kept in `.cache/site` for the next time.
    """
    axes = ("BLOCK_M=64,128", "BLOCK_N=128,256", "BLOCK_K=128", "num_warps=4,8", "num_stages=3,4")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "explorer.html"
        command = [sys.executable, "-c", "from asmtune.cli import main; main()", "prune-report"]
        command += ["benchmarks/corpus/families/matmul_int8.py", "--shape", "M=4096,N=4096,K=4096"]
        command += ["--dtype", "i8", *(f"--axis={axis}" for axis in axes), "--format", "html"]
        command += ["-o", str(page)]
        cache = {"ASMTUNE_CACHE_DIR": str(ROOT / ".cache" / "site")}
        subprocess.run(command, cwd=ROOT, env={**cache, **os.environ}, check=True)
        return page.read_text(encoding="utf-8")


def _public(name: str) -> str:
    """Return the entry of a public name; a room is named as the function `predict` is."""
    if name != "predict":
        return _entry(f"asmtune.{name}")
    anchor = '<a id="asmtune.predict"></a>'
    return f"{anchor}\n\n{_entry('asmtune.runtime.offline.prediction.predict')}"


def _entry(name: str) -> str:
    return f"::: {name}\n    options:\n      heading_level: 3"
