"""`triton.autotune` with and without `asmtune.pruner`, on the GEMM's whole list of configs.

    python -m benchmarks.pruner [--shape M=4096,N=4096,K=4096] [--way stock|pruned] [--output FILE]

Needs a GPU. Both are Triton's own autotuner with the same configs, those of the space of
`kernels/tiled_matmul.py`, each in a new process with empty caches; `pruned` also has
`prune_configs_by={"early_config_prune": asmtune.pruner()}`. A process reports the seconds of its
first call, with all that it imports of asmtune and the fit of a model, and the config that it
chose. The choices of both are timed in one interleaved race afterwards. Nothing is scaled:
`stock` compiles and times all configs, which takes some six minutes. `--way` runs one process
alone and keeps the other's line of the file.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton

from asmtune.core.inputs.shapes import parse_assignments
from asmtune.core.records.artifacts import Failure
from asmtune.kernels import tiled_matmul
from asmtune.runtime.calls import as_triton
from benchmarks.harness import child, empty_caches, parser, raced, table, write

WAYS = ("stock", "pruned")
LABELS = {"stock": "all configs", "pruned": "with `asmtune.pruner()`"}


def first_call(way: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Call the kernel for the first time in this process; return seconds and the choice."""
    problem = tiled_matmul.problem(sizes, "fp16", "cuda")
    values = dict(problem.arguments)
    torch.cuda.synchronize()
    start = time.perf_counter()
    prune = None
    if way == "pruned":
        import asmtune

        prune = {"early_config_prune": asmtune.pruner()}
    configs = [*map(as_triton, tiled_matmul.space().configs())]
    tuned = triton.autotune(configs, key=["M", "N", "K"], prune_configs_by=prune)(
        tiled_matmul.kernel
    )
    tuned[problem.grid](**values)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    best = tuned.best_config
    right = torch.allclose(
        values["c_ptr"].float(), values["a_ptr"].float() @ values["b_ptr"].float(), 1e-2, 1e-1
    )
    return {
        "way": way,
        "first_call_s": round(seconds, 2),
        "timed": len(tuned.configs_timings),
        "config": best.all_kwargs(),
        "right": right,
    }


def speeds(sizes: dict[str, int], rows: list[dict[str, Any]]) -> None:
    """Add the time of each choice to its row, from one interleaved race."""
    from asmtune.measure.timing.policy import TimingPolicy

    problem = tiled_matmul.problem(sizes, "fp16", "cuda")
    launches = {
        row["way"]: partial(tiled_matmul.kernel[problem.grid], **problem.arguments, **row["config"])
        for row in rows
    }
    for row, found in zip(rows, raced(launches, TimingPolicy()).values(), strict=True):
        if isinstance(found, Failure):
            raise SystemExit(f"{row['way']}: its choice cannot be timed: {found.detail}")
        row["median_us"] = round(found.median_us, 3)


def document(content: dict[str, Any]) -> str:
    """Tabulate the first call and the choice of each way."""
    rows = sorted(content["rows"], key=lambda row: WAYS.index(row["way"]))
    stock = rows[0]
    lines = [
        [
            LABELS[row["way"]],
            f"{row['first_call_s']:.1f} s",
            str(row["timed"]),
            f"{row['median_us']:.1f} us",
            f"{stock['median_us'] / row['median_us']:.3f}",
        ]
        for row in rows
    ]
    return table(("`triton.autotune`", "first call", "timed", "its choice", "speed"), lines)


def main() -> None:
    """Run the processes, race their choices, write the file, and print the table."""
    options = parser(__doc__, "pruner.json")
    options.add_argument("--shape", default="M=4096,N=4096,K=4096")
    options.add_argument("--way", choices=WAYS)
    options.add_argument("--child", action="store_true", help="run a way in this process")
    arguments = options.parse_args()
    sizes = parse_assignments(arguments.shape, "--shape")
    if arguments.child:
        print(json.dumps(first_call(arguments.way, sizes)))
        sys.exit()
    path: Path = arguments.output
    kept = json.loads(path.read_text())["rows"] if arguments.way and path.exists() else []
    rows = [row for row in kept if row["way"] != arguments.way]
    for way in (arguments.way,) if arguments.way else WAYS:
        with empty_caches():
            rows.append(
                child("benchmarks.pruner", "--child", "--way", way, "--shape", arguments.shape)
            )
    if wrong := [row["way"] for row in rows if not row["right"]]:
        raise SystemExit(f"{wrong[0]}: the product is wrong")
    speeds(sizes, rows)
    print(document(write(path, {"shape": arguments.shape, "rows": rows})))


if __name__ == "__main__":
    main()
