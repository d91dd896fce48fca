"""The tables of kernels on the pages, of the committed results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import Any, Final

from benchmarks.harness import table
from benchmarks.kernels.entries import ENTRIES
from benchmarks.kernels.plan import Place
from benchmarks.kernels.rows import summary
from benchmarks.kernels.table import FILE
from tests.kernels.accuracy import KERNELS, module_of

BELOW: Final = 0.97
Row = Data = Mapping[str, Any]


def document(content: Mapping[str, Any]) -> str:
    """Write all that is generated: origin, one line a kernel, and one a row."""
    timed = [row for row in content["rows"] if "ours" in row]
    names = dict.fromkeys(row["kernel"] for row in timed)
    parts = [_origin(content), _list_of_kernels(timed)]
    parts += [_kernel(name, [r for r in timed if r["kernel"] == name]) for name in names]
    return "\n".join(parts).rstrip()


def _origin(content: Mapping[str, Any]) -> str:
    runs = [content["runs"][run] for run in sorted({row["run"] for row in content["rows"]})]
    facts = {
        name: ", ".join(dict.fromkeys(str(run[key]) for run in runs))
        for name, key in (("Triton", "triton"), ("PyTorch", "torch"), ("driver", "driver"))
    }
    dates = sorted(run["date"][:10] for run in runs)
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    versions = ", ".join(f"{name} {value}" for name, value in facts.items())
    return (
        f"{', '.join(dict.fromkeys(run['device'] for run in runs))}, {versions}, {span}; "
        f"clock: {content['mode']}, L2 cold. "
        f"Results: [{FILE.name}](../benchmarks/results/{FILE.name}).\n"
    )


def _list_of_kernels(timed: Sequence[Row]) -> str:
    heads = ("kernel", "computes", "shapes", "dtypes", "vendor", "times the vendor's speed", "rows")
    lines = []
    for name in KERNELS:
        module = module_of(name)
        about = [sentence(str(module.__doc__)), part(str(module.__doc__), "Shapes")]
        about += [", ".join(module.DTYPES), ENTRIES[name].vendor_name]
        lines.append([f"[`{name}`](../kernels/{name}.py)", *about, *_speed(name, timed)])
    return f"{table(heads, _slashed(lines))}\n"


def _speed(name: str, rows: Sequence[Row]) -> list[str]:
    """Give a kernel's geometric mean with its range, and its number of rows."""
    mean = summary(rows)["over_vendor_by_kernel"].get(name)
    if not mean:
        return ["-", "0"]
    most = max(row["over_vendor"] for row in rows if row["kernel"] == name)
    range_ = f"({mean['least']:.2f} to {most:.2f})"
    return [f"**{mean['geometric_mean']:.2f}** {range_}", str(mean["rows"])]


def _kernel(name: str, rows: Sequence[Row]) -> str:
    heads = ("shape", "dtype", "p50 us", "p90", "p99", "vendor p50 us", "p90", "p99")
    shown = list(dict.fromkeys(key for row in rows for key in row if key.startswith("over_")))
    if any("called_over_vendor" in row for row in rows):
        shown.insert(1, "called_over_vendor")
    titles = [_TITLES.get(key, key.replace("_", " ")) for key in shown]
    titles[:1] = ["over vendor, ours alone"] if "called_over_vendor" in shown else titles[:1]
    heads += (*titles, "rate", "of the limit")
    return f"### {name}\n\n{table(heads, [_cells(row, shown) for row in rows])}\n"


_TITLES = {"called_over_vendor": "over vendor, as called"}


def _cells(row: Row, over: Sequence[str]) -> list[str]:
    times = [_us(row[who], p) for who in ("ours", "vendor") for p in (50, 90, 99)]
    factors = [_factor(row.get(key)) for key in over]
    if "flops_per_s" in row:
        rate, share = f"{row['flops_per_s'] / 1e12:.1f} TFLOP/s", row.get("share_of_flops")
    else:
        rate, share = f"{row.get('bytes_per_s', 0) / 1e9:,.0f} GB/s", row.get("share_of_dram")
    limit = "-" if share is None else f"{share:.0%}"
    return [_shape(row), row["dtype"], *times, *factors, rate, limit]


def _shape(row: Row) -> str:
    return " ".join(f"{size}={value}" for size, value in row["shape"].items())


def _us(figures: Mapping[str, Any], p: int) -> str:
    value = figures.get(f"p{p}_us")
    return "-" if value is None else f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def _factor(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _slashed(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """Replace the bars of docstrings, which would end a cell."""
    return [[cell.replace("|", "/") for cell in line] for line in lines]


def sentence(docstring: str) -> str:
    """Take the first line of a module's docstring."""
    return docstring.splitlines()[0]


def part(docstring: str, name: str) -> str:
    """Take what a docstring says under a name such as "Shapes", on one line."""
    match = re.search(rf"^{name}: (.+?)(?=^[A-Z]\w+: |^$|\Z)", docstring, re.DOTALL | re.MULTILINE)
    return re.split(r" (?=[A-Z]\w+: )", " ".join(match.group(1).split()))[0] if match else "-"


def over_vendor(*files: Data) -> str:
    """Compare kernels with the vendor's functions, on an H200 and on an H100."""
    devices = [data["summary"] for data in files]
    lines = []
    for name in devices[0]["over_vendor_by_kernel"]:
        means = [device["over_vendor_by_kernel"][name] for device in devices]
        lines.append([f"`{name}`", ENTRIES[name].vendor_name, *_by_device(means)])
        for other in devices[0]["over_others_by_kernel"].get(name, ()):
            means = [device["over_others_by_kernel"][name][other] for device in devices]
            lines.append([f"`{name}`", other.replace("_", " "), *_by_device(means)])
    heads = ("kernel", "against", "H200, rows", "speed", "least", "H100, rows", "speed", "least")
    return table(heads, lines)


def _by_device(devices: Iterable[Row]) -> Iterator[str]:
    """Give the number of rows, the mean and the least of a factor, device by device."""
    for means in devices:
        yield from (f"{means['rows']}", f"{means['geometric_mean']:.3f}", f"{means['least']:.3f}")


def wide(data: Data) -> str:
    """Compare GEMM, scaled products and attention with the vendor's, at shapes few tune for."""
    by_group: dict[str, list[Row]] = {}
    for row in data["rows"]:
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


def slower(h100: Data, wide_h100: Data, h200: Data, wide_h200: Data) -> str:
    """List kernels that are alone below 0.97 of the vendor's speed at some rows, by device.

    A place that both files of a device have timed counts as the second, the later one, has it.
    """
    lines = []
    for device, files in (("H100", (h100, wide_h100)), ("H200", (h200, wide_h200))):
        by_kernel: dict[str, list[Row]] = {}
        for row in _timed(files):
            by_kernel.setdefault(f"{row['kernel']}{_heads(row['shape'])}", []).append(row)
        for kernel, rows in sorted(by_kernel.items()):
            low = sum(row["over_vendor"] < BELOW for row in rows)
            least = min(rows, key=lambda row: float(row["over_vendor"]))
            at = ", ".join(f"{name} {size}" for name, size in least["shape"].items())
            if low and kernel != "tiled_matmul":
                figures = [str(len(rows)), str(low), f"{least['over_vendor']:.3f}"]
                lines.append([device, kernel, *figures, f"{at}, {least['dtype']}"])
    heads = ("device", "kernel, alone", "rows", f"below {BELOW}", "least", "at")
    return table(heads, lines)


def _timed(files: Iterable[Data]) -> list[Row]:
    """List the rows of some files that are held against the vendor, those of later files last."""
    rows = (row for data in files for row in data["rows"])
    return [*{Place.of(row).name: row for row in rows if "over_vendor" in row}.values()]


def _heads(shape: Mapping[str, Any]) -> str:
    """Name the size of heads where a shape has some; those that are no tile's are one group."""
    size = shape.get("D")
    return "" if size is None else f", heads of {size if size in (64, 128) else '40 to 192'}"
