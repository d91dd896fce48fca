"""Tables of the pages: the documents of benchmarks, of their committed results, and a few more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
from benchmarks.kernels.entries import ENTRIES
from benchmarks.kernels.plan import Place
from benchmarks.packages import summary as packages
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
    "kernels_rows": (kernel_rows, "kernels"),
    "launches": (launch_cost, "launch_cost", "h100_launch_cost"),
    "pruner": (pruner, "pruner"),
    "replay": (replay_oracle, "replay"),
    "rows": (replay_rows, "replay_rows"),
    "side_by_side": (side_by_side, "side_by_side"),
    "strategies": (replay_strategies, "replay_strategies"),
    "strategies_kinds": (replay_strategies, "replay_strategies_kinds"),
    "tritons": (tritons, "tritons"),
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


BELOW: Final = 0.97
DEVICES: Final = {"H100": ("h100_kernels", "wide_h100"), "H200": ("kernels", "wide_h200")}
TEMPLATE: Final = "tiled_matmul"
Row = Mapping[str, Any]


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


@shown()
def kernels() -> str:
    """Compare kernels with the vendor's functions, on an H200 and on an H100."""
    devices = [results(name)["summary"] for name in ("kernels", "h100_kernels")]
    lines = []
    for name in devices[0]["over_vendor_by_kernel"]:
        means = [device["over_vendor_by_kernel"][name] for device in devices]
        lines.append([f"`{name}`", ENTRIES[name].vendor_name, *_speeds(means)])
        for other in devices[0]["over_others_by_kernel"].get(name, ()):
            means = [device["over_others_by_kernel"][name][other] for device in devices]
            lines.append([f"`{name}`", other.replace("_", " "), *_speeds(means)])
    heads = ("kernel", "against", "H200, rows", "speed", "least", "H100, rows", "speed", "least")
    return table(heads, lines)


def _speeds(devices: Iterable[Row]) -> Iterator[str]:
    """Give the number of rows, the mean and the least of a factor, device by device."""
    for means in devices:
        yield from (f"{means['rows']}", f"{means['geometric_mean']:.3f}", f"{means['least']:.3f}")


@shown(kernels_wide="wide_h200", kernels_wide_h100="wide_h100")
def wide(name: str) -> str:
    """Compare GEMM, scaled products and attention with the vendor's, at shapes few tune for."""
    by_group: dict[str, list[Row]] = {}
    for row in results(name)["rows"]:
        if "called_over_vendor" in row:
            group = f"`{row['kernel']}`, {row['dtype']}{_heads(row['shape'])}"
            by_group.setdefault(group, []).append(row)
    lines = []
    for group, rows in sorted(by_group.items()):
        line = [group, str(len(rows))]
        for over in ("over_vendor", "called_over_vendor"):
            speeds = [row[over] for row in rows]
            low = sum(speed < BELOW for speed in speeds)
            line += [f"{geometric_mean(speeds):.3f}", f"{min(speeds):.3f}", str(low)]
        lines.append(line)
    heads = ["kernel", "rows"]
    heads += [w + p for w in ("alone", "as called") for p in ("", ", least", f", below {BELOW}")]
    return table(heads, lines)


@shown()
def slower() -> str:
    """List kernels that are alone below 0.97 of the vendor's speed at some rows, by device.

    A place that both files of a device have timed counts as the second, the later one, has it.
    """
    lines = []
    for device, files in DEVICES.items():
        by_kernel: dict[str, list[Row]] = {}
        for row in _timed(files):
            by_kernel.setdefault(f"{row['kernel']}{_heads(row['shape'])}", []).append(row)
        for kernel, rows in sorted(by_kernel.items()):
            low = sum(row["over_vendor"] < BELOW for row in rows)
            least = min(rows, key=lambda row: float(row["over_vendor"]))
            at = ", ".join(f"{name} {size}" for name, size in least["shape"].items())
            if low and kernel != TEMPLATE:
                figures = [str(len(rows)), str(low), f"{least['over_vendor']:.3f}"]
                lines.append([device, kernel, *figures, f"{at}, {least['dtype']}"])
    heads = ("device", "kernel, alone", "rows", f"below {BELOW}", "least", "at")
    return table(heads, lines)


def _timed(files: Iterable[str]) -> list[Row]:
    """List the rows of some files that are held against the vendor, those of later files last."""
    rows = (row for name in files for row in results(name)["rows"])
    return [*{Place.of(row).name: row for row in rows if "over_vendor" in row}.values()]


def _heads(shape: Mapping[str, Any]) -> str:
    """Name the size of heads where a shape has some; those that are no tile's are one group."""
    size = shape.get("D")
    return "" if size is None else f", heads of {size if size in (64, 128) else '40 to 192'}"
