"""The table of all kernels against the vendor's functions.

    python -m benchmarks.kernels [KERNEL ...] [--dtypes fp32,bf16] [--shapes N] [--output FILE]

Needs a GPU. Each kernel goes through the whole accuracy check first, and through a comparison
with float64 at each shape that is timed; what fails is not timed, and the exit status is 1.
Kernels are launched as their users launch them: a config comes from the store, or is tuned.
Times are of asmtune's own clock: interleaved with the vendor's and with plain PyTorch, L2
cold, p50 between Tukey's fences. Bytes are of inputs and results, each moved once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asmtune.measure import TimingPolicy, device_name
from asmtune.target.shipped import match_device
from benchmarks.kernels.entry import entry_of
from benchmarks.kernels.rows import Timer, summary
from benchmarks.provenance import RESULTS, write
from tests.kernels.accuracy import KERNELS, case_of, differences, module_of


def wrong(name: str, dtype: str) -> dict[str, float]:
    """What the accuracy check finds wrong."""
    found = differences(name, dtype, "cuda")
    case = case_of(name)
    if case.extra is not None:
        found |= case.extra("cuda")
    return {what: min(error, 1e300) for what, error in found.items() if not error <= 1.0}


def rows(options: argparse.Namespace, timer: Timer) -> Iterator[dict[str, Any]]:
    """The table, one row after the other."""
    wanted = options.dtypes.split(",") if options.dtypes else None
    for name in options.kernels or KERNELS:
        module, entry = module_of(name), entry_of(name)
        for dtype in wanted or entry.dtypes or module.DTYPES:
            if dtype not in (entry.dtypes or module.DTYPES):
                continue
            failed = wrong(name, dtype)
            if failed:
                place = {"kernel": name, "group": entry.group, "dtype": dtype}
                yield {**place, "shape": {}, "wrong": failed}
                continue
            for shape in module.SHAPES[: options.shapes]:
                yield timer.row(module, entry, shape, dtype)


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    shape = " ".join(f"{name}={size}" for name, size in row["shape"].items())
    head = f"{row['kernel']:<24}{shape:<28}{row['dtype']:<6}"
    if "wrong" in row:
        return f"{head} WRONG {row['wrong']}"
    ours, vendor = (row[who].get("p50_us", float("nan")) for who in ("ours", "vendor"))
    share = row.get("share_of_flops", row.get("share_of_dram", float("nan")))
    return (
        f"{head}{ours:>10.2f} us {vendor:>10.2f} us {row.get('over_vendor', 0):>7.2f} {share:>6.0%}"
    )


def main() -> None:
    """Checks and times the kernels, and writes the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"of {', '.join(KERNELS)}")
    parser.add_argument("--dtypes", default="", help="comma-separated; default: all of a kernel's")
    parser.add_argument("--shapes", type=int, default=None, help="of each kernel; default: all")
    parser.add_argument("--rounds", type=int, default=60, help="samples of each row")
    parser.add_argument("--mode", choices=("events", "graph"), default="events")
    parser.add_argument("--output", type=Path, default=RESULTS / "kernels.json")
    options = parser.parse_args()
    unknown = sorted(set(options.kernels) - set(KERNELS))
    if unknown:
        parser.error(f"unknown kernel {unknown[0]!r}: one of {', '.join(KERNELS)}")
    policy = TimingPolicy(fine_rounds=options.rounds, mode=options.mode)
    table = []
    for row in rows(options, Timer(policy, match_device(device_name()))):
        table.append(row)
        print(line(row), flush=True)
        # After each row, so that an interrupted run leaves what it has.
        write(options.output, {"mode": options.mode, "summary": summary(table), "rows": table})
    sys.exit(1 if any("wrong" in row for row in table) else 0)


if __name__ == "__main__":
    main()
