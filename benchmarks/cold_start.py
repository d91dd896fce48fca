"""Cost of a tuner to a new process that finds its key in the store.

    python -m benchmarks.cold_start [--rounds N] [--output FILE]

Needs a GPU. An fp16 GEMM of 4096^3 is tuned once (384 configs, quickly), which fills a store of
the benchmark's own and Triton's cache. Then fresh processes launch it once each, in turn, first
one kind and then the other: `plain` is `@triton.jit` with the winner's config written down,
`tuned` the same kernel under `@asm_autotune`, which finds the config. Each process reports:

    import_s    import torch, triton
    context_s   three tensors on the GPU: CUDA's context, and what PyTorch loads with it
    first_s     import asmtune, decorate, look up, first launch, synchronise

`whole` is their sum, and a ratio is that of the medians, tuned over plain.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import caches, child, parser, table, write

PHASES = ("import_s", "context_s", "first_s")
VARIANTS = ("plain", "tuned")
LIMIT = 1.2
"""Most time that `whole` may take, as a multiple of the plain kernel's."""


def launched(variant: str, config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run one process; return the times that it prints.

    Raises:
        SystemExit: it failed; shows what it said.
    """
    words = ("benchmarks.cold_start_child", variant, json.dumps(config))
    # An installed package is not compiled at each start.
    times: dict[str, Any] = child(*words, **caches(folder), PYTHONDONTWRITEBYTECODE="")
    if not times["right"]:
        raise SystemExit(f"{variant}: the product is wrong")
    times["whole_s"] = sum(times[phase] for phase in PHASES)
    return times


def measured(rounds: int, folder: Path) -> dict[str, Any]:
    """Run all processes, after the store and Triton's cache were filled."""
    tuning = launched("tune", {}, folder)
    config = tuning["config"]
    for variant in VARIANTS:  # the file cache of all that is loaded, and the launcher's C part
        launched(variant, config, folder)
    by_variant: dict[str, list[dict[str, Any]]] = {variant: [] for variant in VARIANTS}
    for number in range(rounds):
        for variant in VARIANTS if number % 2 == 0 else VARIANTS[::-1]:
            one = launched(variant, config, folder)
            if one["config"] != config:
                raise SystemExit(f"{variant}: launched {one['config']}, not {config}")
            by_variant[variant].append(one)
    return {"tuning_first_s": tuning["first_s"], "config": config, "processes": by_variant}


def summary(processes: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Compute medians in seconds by kind and phase, and their ratios."""
    phases = (*PHASES, "whole_s")
    medians = {
        variant: {
            phase: round(statistics.median(one[phase] for one in ones), 4) for phase in phases
        }
        for variant, ones in processes.items()
    }
    plain, tuned = medians["plain"], medians["tuned"]
    ratios = {phase: round(tuned[phase] / plain[phase], 3) for phase in ("first_s", "whole_s")}
    return {
        "medians": medians,
        "ratios": ratios,
        "added_s": round(tuned["first_s"] - plain["first_s"], 4),
        "limit": LIMIT,
        "loaded_needlessly": sorted({name for one in processes["tuned"] for name in one["heavy"]}),
    }


def document(content: dict[str, Any]) -> str:
    """Tabulate a process that finds its key in the store beside one without a tuner."""
    data, phases = content["summary"], ("first_s", "whole_s")
    labels = {"plain": "without a tuner", "tuned": "`@asm_autotune`, key stored"}
    lines = [
        [label, *(f"{data['medians'][name][phase]:.3f} s" for phase in phases)]
        for name, label in labels.items()
    ]
    lines.append(["ratio", *(f"{data['ratios'][phase]:.2f}" for phase in phases)])
    return table(("a new process", "first launch", "all of it"), lines)


def main() -> None:
    """Write the file, and print the medians."""
    options = parser(__doc__, "cold_start.json")
    options.add_argument("--rounds", type=int, default=15)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measured(arguments.rounds, Path(folder))
    medians = summary(results["processes"])
    about = {"summary": medians, "rounds": arguments.rounds}
    print(document(write(arguments.output, {**about, **results})))


if __name__ == "__main__":
    main()
