"""Writes the tables and the figure of docs/kernels.md from the committed results.

    python -m benchmarks.kernels.document

Needs no GPU, and matplotlib for the figure (`pip install 'asmtune[figures]'`). What stands in
the document outside of the two marks is written by hand, and stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.kernels.entry import entry_of
from benchmarks.kernels.figure import draw
from benchmarks.kernels.rows import summary
from benchmarks.kernels.table import FILE
from benchmarks.marked import between
from benchmarks.provenance import RESULTS
from tests.kernels.accuracy import KERNELS, module_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "kernels.md"
FIGURE = DOCUMENT.with_suffix(".svg")
LIMITS = RESULTS / "limits.json"
BEGIN, END = "<!-- begin: python -m benchmarks.kernels.document -->", "<!-- end -->"

Row = Mapping[str, Any]


def results(path: Path = FILE) -> dict[str, Any]:
    """The committed results; without rows as long as there is no file."""
    if not path.exists():
        return {"mode": "events", "runs": [], "rows": []}
    found: dict[str, Any] = json.loads(path.read_text())
    if LIMITS.exists():
        found["limits"] = json.loads(LIMITS.read_text())["rows"]
    return found


def rewritten(text: str, found: Mapping[str, Any]) -> str:
    """A document with the tables of results between its marks.

    Raises:
        ValueError: a mark is missing.
    """
    return between(text, BEGIN, END, f"\n\n{tables(found)}\n", DOCUMENT.name)


def tables(found: Mapping[str, Any]) -> str:
    """All that is generated: origin, figure, one line a kernel, and one a row."""
    timed = [row for row in found["rows"] if "ours" in row]
    parts = [_list_of_kernels(timed)]
    if timed:
        parts = [_origin(found), f"![Speed-up over the vendor, by kernel]({FIGURE.name})\n", *parts]
        names = dict.fromkeys(row["kernel"] for row in timed)
        parts += [_slower(found["limits"])] if found.get("limits") else []
        parts += [_kernel(name, [r for r in timed if r["kernel"] == name]) for name in names]
    return "\n".join(parts)


def _origin(found: Mapping[str, Any]) -> str:
    runs = [found["runs"][run] for run in sorted({row["run"] for row in found["rows"]})]
    facts = {
        name: ", ".join(dict.fromkeys(str(run[key]) for run in runs))
        for name, key in (("Triton", "triton"), ("PyTorch", "torch"), ("driver", "driver"))
    }
    dates = sorted(run["date"][:10] for run in runs)
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    made = ", ".join(f"{name} {value}" for name, value in facts.items())
    return (
        f"{', '.join(dict.fromkeys(run['device'] for run in runs))}, {made}, {span}; "
        f"clock: {found['mode']}, L2 cold. "
        f"Results: [{FILE.name}](../benchmarks/results/{FILE.name}).\n"
    )


def _list_of_kernels(timed: Sequence[Row]) -> str:
    means = summary(timed)["over_vendor_by_kernel"]
    heads = ("kernel", "computes", "shapes", "dtypes", "vendor", "times the vendor's speed", "rows")
    lines = []
    for name in KERNELS:
        module, mean = module_of(name), means.get(name)
        most = max((r["over_vendor"] for r in timed if r["kernel"] == name and mean), default=0.0)
        speed = (
            f"**{mean['geometric_mean']:.2f}** ({mean['least']:.2f} to {most:.2f})" if mean else "-"
        )
        about = [sentence(module.__doc__), part(module.__doc__, "Shapes"), ", ".join(module.DTYPES)]
        vendor, rows = entry_of(name).vendor_name, str(mean["rows"] if mean else 0)
        link = f"[`{name}`](../kernels/{name}.py)"
        lines.append([link, *about, vendor, speed, rows])
    return table(heads, lines)


def _slower(rows: Sequence[Row]) -> str:
    heads = ("kernel", "shape", "dtype", "speed", "p50 us", "model's us", "takes most")
    heads += ("programs an SM", "waves", "registers", "config")
    lines = []
    for row in rows:
        seen = row["foreseen"]
        shape = " ".join(f"{size}={value}" for size, value in row["shape"].items())
        config = " ".join(f"{name}={value}" for name, value in row["config"].items())
        line = [row["kernel"], shape, row["dtype"], _factor(row["over_vendor"])]
        line += [f"{row['ours_us']:.1f}", f"{seen['us']:.1f}", str(seen["limit"])]
        line += [f"{seen['programs_per_sm']:g}", f"{seen['waves']:.2f}"]
        lines.append([*line, f"{seen['regs_per_thread']:g}", config])
    said = (
        "Rows under 0.9 of the vendor's speed, and what takes most of their time by the model that "
        "asmtune predicts with, of the config's own machine code "
        f"([{LIMITS.name}](../benchmarks/results/{LIMITS.name}), by `python -m benchmarks.limits`):"
    )
    return f"### Where the vendor is faster\n\n{said}\n\n{table(heads, lines)}"


def _kernel(name: str, rows: Sequence[Row]) -> str:
    heads = ("shape", "dtype", "p50 us", "p90", "p99", "vendor p50 us", "p90", "p99")
    factors = dict.fromkeys(key for row in rows for key in row if key.startswith("over_"))
    heads += (*(key.replace("_", " ") for key in factors), "rate", "of the limit")
    return f"### {name}\n\n{table(heads, [_cells(row, list(factors)) for row in rows])}"


def _cells(row: Row, over: Sequence[str]) -> list[str]:
    shape = " ".join(f"{size}={value}" for size, value in row["shape"].items())
    times = [_us(row[who], p) for who in ("ours", "vendor") for p in (50, 90, 99)]
    factors = [_factor(row.get(key)) for key in over]
    if "flops_per_s" in row:
        rate, share = f"{row['flops_per_s'] / 1e12:.1f} TFLOP/s", row.get("share_of_flops")
    else:
        rate, share = f"{row.get('bytes_per_s', 0) / 1e9:,.0f} GB/s", row.get("share_of_dram")
    return [shape, row["dtype"], *times, *factors, rate, "-" if share is None else f"{share:.0%}"]


def _us(figures: Mapping[str, Any], p: int) -> str:
    value = figures.get(f"p{p}_us")
    return "-" if value is None else f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def _factor(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    rows = [heads, ["---"] * len(heads), *lines]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in rows)


def sentence(docstring: str) -> str:
    """The first line of a module's docstring."""
    return docstring.splitlines()[0]


def part(docstring: str, name: str) -> str:
    """What a docstring says under a name such as "Shapes", on one line."""
    found = re.search(rf"^{name}: (.+?)(?=^[A-Z]\w+: |^$|\Z)", docstring, re.DOTALL | re.MULTILINE)
    return re.split(r" (?=[A-Z]\w+: )", " ".join(found.group(1).split()))[0] if found else "-"


def main() -> None:
    """Writes document and figure."""
    found = results()
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text(), found))
    if found["rows"]:
        draw(found["rows"], FIGURE)


if __name__ == "__main__":
    main()
