"""Bench processes on one GPU, one after another: the noise that `asmtune check` meets.

    python -m benchmarks.bench_samples [--seconds 240] [--least 16] [--output FILE]

Needs an H200. Times 12 rows of 6 kernels on their shipped configs, in as many processes as fit
into the seconds, each by the code of `asmtune bench`, nothing else between them, and writes all
samples with their provenance into `results/bench_runs.json.gz`. Any consecutive processes of it
are a bench run of a kernel that has not changed: what a check of two of them finds is a false
alarm. `python -m benchmarks.false_alarms` counts them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

import torch

from asmtune.base.settings import Settings
from asmtune.measure.timing.nvml import device_name
from asmtune.workshop.regression.plan import BenchRequest
from asmtune.workshop.regression.processes import Collected, Processes
from asmtune.workshop.regression.run import BenchRow, run_to_json
from benchmarks.harness import RESULTS, provenance

FILE = RESULTS / "bench_runs.json.gz"

ROWS = {
    "matmul": ("fp16", ["M=512,N=512,K=512", "M=4096,N=4096,K=4096"]),
    "softmax": ("fp32", []),
    "rmsnorm": ("fp32", []),
    "cross_entropy": ("fp32", []),
    "gelu": ("fp32", []),
    "conv2d": ("fp32", []),
}
"""Kernels with a dtype and shapes; without shapes the first two that are stored."""

A_KERNEL = 2


def rows(device: str) -> list[BenchRow]:
    """List the rows to time: two of each kernel, as far as configs of the device are shipped."""
    chosen = []
    for kernel, (dtype, shapes) in ROWS.items():
        plan = BenchRequest([kernel], shapes, dtype, device).plan(Settings.from_environment())
        chosen += plan.rows[:A_KERNEL]
    return chosen


def measured(seconds: float, least: int) -> dict[str, Any]:
    """Run as many processes as fit; return the run as JSON values, with when each process ended."""
    collected, ended = Collected.of(rows(device_name())), list[float]()
    began = time.monotonic()
    with Processes(collected) as processes:
        while len(ended) < least or time.monotonic() - began < seconds:
            processes.take(len(ended), another=True)
            ended.append(round(time.monotonic() - began, 2))
            print(f"{ended[-1]:7.1f} s: process {len(ended)}, {len(collected.left)} rows")
    for number, reason in collected.failures.items():
        print(f"{collected.rows[number].subject.identity}: {reason}")
    return {"ended_s": ended, "run": run_to_json(collected.run("bench_samples", ()))}


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--least", type=int, default=16, help="processes, however long they take")
    parser.add_argument("--output", type=Path, default=FILE)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no CUDA GPU on this machine")
    document = {"provenance": provenance(), **measured(options.seconds, options.least)}
    options.output.write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))
    print(f"{options.output.name}: {options.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
