"""Tables of the pages: the documents of benchmarks, of their committed results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
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
    lowprec_groups,
    pruner,
    replay_oracle,
    replay_rows,
    replay_strategies,
    side_by_side,
)
from benchmarks.aibench8 import summary as aibench8
from benchmarks.harness import table
from benchmarks.kernels import document as kernels
from benchmarks.packages import summary as packages
from website import claims  # noqa: F401 - lists its tables
from website.files import RESULTS, TABLES, link, results, shown

DOCUMENTS: Final = {
    "ablation": (ablate, "ablation"),
    "ablation_families": (ablate, "ablation_families2"),
    "aibench8": (aibench8, "aibench8", "h100_aibench8"),
    "backward_passes": (backward_passes, "backward_conv2d", "backward_gru"),
    "cold_start": (cold_start, "cold_start"),
    "auto_space": (auto_space, "auto_space"),
    "false_alarms": (false_alarms, "false_alarms"),
    "first_stage": (first_stage, "first_stage"),
    "host_cost": (host_cost, "h100_host_cost", "h200_host_cost"),
    "kernels_rows": (kernels, "kernels"),
    "launches": (launch_cost, "launch_cost", "h100_launch_cost"),
    "lowprec_groups": (lowprec_groups, "lowprec_groups"),
    "pruner": (pruner, "pruner"),
    "replay": (replay_oracle, "replay"),
    "rows": (replay_rows, "replay_rows"),
    "side_by_side": (side_by_side, "side_by_side"),
    "strategies": (replay_strategies, "replay_strategies"),
    "strategies_kinds": (replay_strategies, "replay_strategies_kinds"),
}
"""By a table's name: the benchmark that writes it, and the files that it is of."""


def _document(benchmark: Any, *names: str) -> str:
    """Write a benchmark's document of some files."""
    text: str = benchmark.document(*map(results, names))
    return text


TABLES |= {name: partial(_document, *of) for name, of in DOCUMENTS.items()}
TABLES["pull_request"] = false_alarms.pull_request


@shown(packages="packages")
def of_programs(name: str) -> str:
    """Compare the seconds of first calls of public packages."""
    return packages.document(results(name)["programs"])


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
def exact() -> str:
    """Count what is predicted exactly: failures and resources."""
    files = [results(name) for name in ("replay", "replay_families2")]
    lines = [
        ["failures told, of those recorded", *(_told(data, "fails") for data in files)],
        ["configs told to run, of those that ran", *(_told(data, "runs") for data in files)],
    ]
    labels = {"regs": "registers", "spills": "spilled words", "shared": "shared memory"}
    for name, label in labels.items():
        equal = (f"{data['resources'][f'{name} equal']:,}" for data in files)
        lines.append([f"configs whose {label} are equal", *equal])
    kernels = (f"{len(data['scorers']['learned']['kernels'])} kernels" for data in files)
    return table(("", *kernels), lines)


def _told(data: Mapping[str, Any], what: str) -> str:
    counts = data["failures"]
    recorded = sum(n for name, n in counts.items() if name.endswith(f"recorded {what}"))
    return f"{counts[f'told {what}, recorded {what}']:,} of {recorded:,}"


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
