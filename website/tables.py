"""Tables of the pages: the documents of benchmarks, of their committed results, and a few more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import geometric_mean
from typing import Any, Final

from benchmarks import (
    ablate,
    auto_space,
    backward_passes,
    cold_start,
    false_alarms,
    first_stage,
    host_cost,
    launch_cost,
    pruner,
    replay_oracle,
    replay_rows,
    replay_strategies,
    side_by_side,
    tritons,
)
from benchmarks.aibench8 import summary as aibench8
from benchmarks.harness import table
from benchmarks.kernels import document as kernel_rows
from benchmarks.packages import summary as packages
from website.files import RESULTS, TABLES, link, results, shown

DOCUMENTS: Final[dict[str, tuple[Any, ...]]] = {
    "ablation": (ablate.document, "ablation"),
    "ablation_families": (ablate.document, "ablation_families2"),
    "aibench8": (aibench8.document, "aibench8", "h100_aibench8"),
    "backward_passes": (backward_passes.document, "backward_conv2d", "backward_gru"),
    "cold_start": (cold_start.document, "cold_start"),
    "auto_space": (auto_space.document, "auto_space"),
    "false_alarms": (false_alarms.document, "false_alarms"),
    "first_stage": (first_stage.document, "first_stage"),
    "host_cost": (host_cost.document, "h100_host_cost", "h200_host_cost"),
    "kernels_rows": (kernel_rows.document, "kernels"),
    "launches": (launch_cost.document, "launch_cost", "h100_launch_cost"),
    "pruner": (pruner.document, "pruner"),
    "replay": (replay_oracle.document, "replay"),
    "exact": (replay_oracle.exact, "replay", "replay_families2"),
    "rows": (replay_rows.document, "replay_rows"),
    "side_by_side": (side_by_side.document, "side_by_side"),
    "strategies": (replay_strategies.document, "replay_strategies"),
    "strategies_kinds": (replay_strategies.document, "replay_strategies_kinds"),
    "kernels": (kernel_rows.over_vendor, "kernels", "h100_kernels"),
    "kernels_wide": (kernel_rows.wide, "wide_h200"),
    "kernels_wide_h100": (kernel_rows.wide, "wide_h100"),
    "packages": (lambda data: packages.document(data["programs"]), "packages"),
    "slower": (kernel_rows.slower, "h100_kernels", "wide_h100", "kernels", "wide_h200"),
    "tritons": (tritons.document, "tritons"),
}
"""By a table's name: what writes it, of a benchmark, and the files that it is of."""


def _document(write: Callable[..., str], *names: str) -> str:
    return write(*map(results, names))


TABLES |= {name: partial(_document, *of) for name, of in DOCUMENTS.items()}
TABLES["pull_request"] = false_alarms.pull_request


@shown()
def error() -> str:
    """Say what keeping a number of a ranking was worth, by scorer and moment."""
    counts = (1, 5, 10, 20, 50)
    lines = []
    for data in results("error")["tables"]:
        share = [f"{data['share'][data['counts'].index(n)][-1]:.3f}" for n in counts]
        dropped = f"{data['dropped'][data['counts'].index(10)][-1]:.0%}"
        moment = "" if data["moment"] == "assembly" else ", before compiling"
        lines.append([f"`{data['scorer']}`{moment}", *share, dropped])
    kept = (f"{count} kept" for count in counts)
    return table(["ranked by", *kept, "of 10, the best dropped"], lines)


@shown()
def sources() -> str:
    """List the result files with the commands that made them."""
    return table(("file", "command", "device", "CPUs", "date"), _sources())


def _sources() -> Iterator[list[str]]:
    for name in sorted(path.stem for path in RESULTS.glob("*.json")):
        data = results(name)
        origin = data.get("provenance", data.get("meta"))
        if origin is None:  # what a command of asmtune wrote, with its own account
            continue
        runs = data.get("runs", [origin])
        last = max(runs, key=lambda run: str(run["date"]))
        made = f"`{last['command']}`"
        if len(runs) > 1:
            made += f", the last of {len(runs)} runs, which the file lists"
        if recorded_by := data.get("recorded"):
            made, last = f"{made} of what `{recorded_by['command']}` recorded", recorded_by
        device = "no GPU" if last["device"] == "none" else last["device"]
        yield [link(name), made, device, str(last["cpus"]), last["date"][:10]]


@shown(figures="root", figures_of_docs="docs")
def figures(page: str) -> str:
    """List three figures that were measured whole, each with its file and its device."""
    rows = [[*row, f"{link(name, page)}, {device}"] for name, device, *row in _measured()]
    return table(("measured", "asmtune", "`triton.autotune`", "file, device"), rows)


def _measured() -> Iterator[tuple[str, ...]]:
    data = results("packages")
    programs, seconds = data["programs"], data["summary"]["first_s"]
    rows = [row for program in programs for row in program["operations"].values()]
    device = " and ".join({program["provenance"]["device"] for program in programs})
    label = f"first calls of {len(rows)} operations of {len(programs)} public packages, with tuning"
    yield "packages", device, label, f"{seconds['asmtune']:.0f} s", f"{seconds['plain']:.0f} s"
    speeds = sorted(row["speed"]["asmtune"] for row in rows)
    means = (
        f"{geometric_mean(speeds):.3f}; without the largest row {geometric_mean(speeds[:-1]):.3f}"
    )
    label = "GPU speed of the configs chosen there, geometric mean"
    yield "packages", device, label, f"{means}; worst {speeds[0]:.3f}", "1"
    data = results("launch_cost")
    us = {name: f"{row['median_us']:.1f} us" for name, row in data["19 arguments"].items()}
    label = (
        "host time of a launch of a known key: 19 arguments, a function as grid (a constant grid)"
    )
    tuners = ("asm_autotune", "triton.autotune")
    both = (f"{us[f'{name}, grid of a function']} ({us[name]})" for name in tuners)
    yield "launch_cost", data["provenance"]["device"], label, *both
