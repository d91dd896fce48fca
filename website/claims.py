"""The README's own table, what is claimed, and tables of kernels beside the vendor's functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import geometric_mean
from typing import Any, Final

from benchmarks.harness import table
from benchmarks.kernels.entries import ENTRIES
from benchmarks.kernels.plan import Place
from website.files import link, results, shown

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
def claims() -> str:
    """List what is claimed of the prediction, each with what it is held against, and its file."""
    return table(("claim, on an H200", "figure", "against", "file"), [*_predictions(), _assembly()])


def _predictions() -> Iterator[list[str]]:
    first = "share of the best speed that the first pick keeps"
    ten = "the same, the best of the ten picked first"
    again, stored = "replayed in the same way", results("replay_rows")["files"]
    sets = (
        ("replay", results("replay"), "chance", "each predicted by a model that never saw it"),
        ("replay_rows", stored["families2"], "roofline", f"of other families, {again}"),
        ("replay_rows", stored["kinds"], "roofline", f"of kinds that the families lack, {again}"),
    )
    for file, data, rival, words in sets:
        scorers = data["scorers"]
        best, other = (scorers[name]["all"] for name in ("learned", rival))
        kernels = f"{len(scorers['learned']['kernels'])} kernels{',' * (file == 'replay')} {words}"
        for text, cut in ((f"{first}: {kernels}", "top1"), (ten, "top10")):
            against = f"`{rival}` {other[cut]:.3f}"
            yield [text, f"{best[cut]:.3f}", against, link(file)]


def _assembly() -> list[str]:
    data = results("ablation")
    shares = {name: scorer["all"]["top1"] for name, scorer in data["scorers"].items()}
    label = "what the assembly adds: first pick, by a model fitted on the other "
    label += f"{data['kernels_to_learn_from'] - 1} kernels alone"
    against = f"before compiling, without any assembly, {shares['before compiling']:.3f}; "
    against += f"by tile sizes, warps and stages alone {shares['tile sizes only']:.3f}"
    return [label, f"{shares['all features']:.3f}", against, link("ablation")]


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
