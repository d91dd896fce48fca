"""Limits of kernels that are slower than the vendor's: by asmtune's model, and by counters.

    python -m benchmarks.limits [--below 0.9] [--counters] [--table FILE] [--output FILE]

Takes the rows of a table of `benchmarks.kernels` that are below a speedup. The config of each is
compiled and read as `asmtune explain` does, which needs no GPU: the time that the model expects,
what takes most of it, and what of it could overlap. `--counters` asks Nsight Compute (`ncu` on the
path, on a GPU) about our kernel and the vendor's, with L2 flushed before; clocks are left alone.
Nothing of that is a timing to quote: counters are read over several replays of a launch.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import load_target
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.space.space import Space
from asmtune.predict.prune.flow import Funnel
from asmtune.predict.score.scorers import make_scorer
from benchmarks.provenance import RESULTS, write

METRICS = {
    "ns": "gpu__time_duration.sum",
    "grid": "launch__grid_size",
    "registers": "launch__registers_per_thread",
    "waves": "launch__waves_per_multiprocessor",
    "programs_per_sm": "launch__occupancy_limit_registers",
    "tensor_%": "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
    "shared_%": "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
    "l1_%": "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_%": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_%": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_active_%": "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "l2_read_bytes": "lts__t_sectors_op_read.sum",
}
"""Names here and Nsight Compute's; sectors are turned into bytes."""

_TERMS = ("regs_per_thread", "spill_words", "programs_per_sm", "waves", "tail", "occupancy")
_SECTOR = 32
_LIMIT_S = 120


def foreseen(row: Mapping[str, Any]) -> dict[str, Any]:
    """Describe what the model predicts of a row's config, compiled for an H200.

    Raises:
        RuntimeError: it does not compile.
    """
    module = load_kernel_module(str(row["kernel"]))
    problem = module.problem(row["shape"], str(row["dtype"]), "meta")
    config, settings = Config.from_dict(row["config"]), Settings.from_environment()
    # Without caps on registers, which would be further configs.
    funnel = Funnel(load_target("H200"), make_scorer("roofline"), settings, caps=False)
    (verdict,) = funnel.prune(problem, Space.from_configs([config])).verdicts
    if verdict.features is None or verdict.predicted_us is None:
        raise RuntimeError(f"{row['kernel']} at {row['shape']}: {verdict.failure}")
    terms = {name: verdict.features[name] for name in _TERMS}
    return {"us": round(verdict.predicted_us, 2), "limit": verdict.bottleneck, **terms}


def child(place: str) -> None:
    """Launch ours, then the vendor's, between the marks of the profiler."""
    import torch

    from benchmarks.kernels.entry import entry_of
    from tests.kernels.accuracy import module_of

    row = json.loads(place)
    module, entry = module_of(row["kernel"]), entry_of(row["kernel"])
    inputs = module.inputs(row["shape"], row["dtype"], "cuda")
    public, vendor = getattr(module, row["kernel"]), entry.vendor(inputs)
    with torch.no_grad():
        for _ in range(3):
            public(**inputs)
            vendor()
        torch.cuda.synchronize()
        for launch in (lambda: public(**inputs), vendor):
            torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
            launch()
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def counters(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the kernels that ours and the vendor's launch, in order, with their counters.

    Raises:
        RuntimeError: Nsight Compute failed; the message has the end of its output.
    """
    place = json.dumps({name: row[name] for name in ("kernel", "shape", "dtype")})
    command = ["ncu", "--csv", "--page", "raw", "--clock-control", "none"]
    command += ["--print-units", "base"]
    command += ["--profile-from-start", "off", "--metrics", ",".join(METRICS.values())]
    command += [sys.executable, "-m", "benchmarks.limits", "--child", place]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    start = done.stdout.find('"ID"')
    if done.returncode or start < 0:
        raise RuntimeError(f"ncu on {place}: {(done.stdout + done.stderr)[-300:]}")
    return [
        _counted(line) for line in csv.DictReader(io.StringIO(done.stdout[start:])) if line["ID"]
    ]


def counted(row: Mapping[str, Any]) -> dict[str, Any]:
    """Read the counters, or say why they cannot be read, so that other rows still run."""
    try:
        return {"kernels": counters(row)}
    except subprocess.TimeoutExpired:
        return {"kernels": [], "not_counted": f"ncu had not ended after {_LIMIT_S} s"}
    except RuntimeError as error:
        return {"kernels": [], "not_counted": str(error)[-300:]}


def _counted(line: Mapping[str, str]) -> dict[str, Any]:
    """Give a kernel's counters by our names; those that this GPU does not count are left out."""
    counters: dict[str, Any] = {"name": line["Kernel Name"], "block": line["Block Size"]}
    for name, metric in METRICS.items():
        text = line.get(metric, "").replace(",", "")
        if text.replace(".", "", 1).isdigit():
            counters[name] = round(float(text), 2)
    if "l2_read_bytes" in counters:
        counters["l2_read_bytes"] = int(counters["l2_read_bytes"] * _SECTOR)
    return counters


def main() -> None:
    """Profile the rows that are slower, in one process of Nsight Compute each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--below", type=float, default=0.9, help="speedup over the vendor")
    parser.add_argument("--table", type=Path, default=RESULTS / "kernels.json")
    parser.add_argument("--output", type=Path, default=RESULTS / "limits.json")
    parser.add_argument("--counters", action="store_true", help="ask Nsight Compute as well")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    rows = json.loads(options.table.read_text())["rows"]
    results: list[dict[str, Any]] = []
    for row in rows:
        if row.get("over_vendor", 1.0) >= options.below:
            continue
        names = ("kernel", "shape", "dtype", "over_vendor", "config")
        result = {name: row[name] for name in names} | {"ours_us": row["ours"]["p50_us"]}
        result["foreseen"] = foreseen(row)
        if options.counters:
            result |= counted(row)
        results.append(result)
        print(row["kernel"], row["dtype"], row["shape"], json.dumps(result["foreseen"]), flush=True)
        write(options.output, {"metrics": METRICS, "rows": results})


if __name__ == "__main__":
    main()
