"""AI-Bench8: eight tuned kernels against untuned ones, with parts of the tuner taken away.

    python -m benchmarks.aibench8 [--kernels softmax,rope] [--rounds N] [--output FILE]

Needs a GPU. Caches are empty at
the start. Each kernel is tuned, each result checked against float64 (whole numbers exactly),
then all are timed in one race, interleaved in an order of each round's own: many launches in a
CUDA graph, whose replay is timed, caches as the launch before left them. The tuner's clock does
the same. Bars are speedups over the untuned kernel in `baselines/`:

    full          the kernel of `asmtune.kernels` with the config that the tuner found
    dispatch_off  the same with the default config of its space: nothing is selected
    contract_off  tuned as well, but told nothing: no divisor of sizes, no alignment, so that
                  it is the masked variant that takes any argument
    asm_off       the same space, as many timings as `full` took, of configs drawn at random:
                  no code is looked at

All but `dispatch_off` are tuned by several seeds, each as often, of which the median counts; once,
where `full` timed the whole space.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from asmtune.base.errors import AsmtuneError
from asmtune.base.settings import Settings
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.measure.timing.nvml import device_name
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.triton_api.launching import allocating
from asmtune.tuning.options import EFFORTS
from benchmarks.aibench8.experiment import Plan
from benchmarks.aibench8.summary import document, speedups, summary
from benchmarks.aibench8.tasks import TASKS, Task
from benchmarks.aibench8.tuning import TaskTuner
from benchmarks.harness import empty_caches, parser, provenance, target_of, write_json

GRAPH = TimingPolicy(mode="graph", flush_bytes=0, launches=20)
"""The tuner's timing: launches one after another, warm."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the kernels and write the results, anew after each kernel."""
    options_ = parser(__doc__, "aibench8.json")
    options_.add_argument("--kernels", default="", help=f"some of {','.join(TASKS)}; default: all")
    options_.add_argument("--effort", choices=sorted(EFFORTS), default="balanced")
    options_.add_argument("--seeds", type=int, default=5, help="draws of each way to tune")
    options_.add_argument("--rounds", type=int, default=40, help="samples of each in the last race")
    options_.add_argument("--launches", type=int, default=100, help="in a graph of the last race")
    options_.add_argument(
        "--seconds", type=float, default=330.0, help="after which no more draws begin"
    )
    options = options_.parse_args(arguments)
    names = options.kernels.split(",") if options.kernels else list(TASKS)
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        options_.error(f"no kernel {unknown[0]!r}: give some of {','.join(TASKS)}")
    tasks = [task for name, task in TASKS.items() if name in names]
    with empty_caches(), allocating():
        _measure(tasks, options)


def _measure(tasks: Sequence[Task], options: argparse.Namespace) -> None:
    import torch

    device = device_name()
    effort = replace(EFFORTS[options.effort], policy=GRAPH)
    policy = replace(GRAPH, launches=options.launches, fine_rounds=options.rounds)
    tuner = TaskTuner(device, effort, Settings.from_environment())
    plan, began = Plan(tuner, target_of(device), policy, options.seeds), time.monotonic()
    results: list[dict[str, Any]] = []
    about = {"effort": effort.name, "strategy": effort.strategy, "scorer": effort.scorer}
    about |= {"pace": asdict(effort.pace), "tuning_clock": asdict(GRAPH)}
    # The first, matmul, has by far the most configs: it comes last, and has what time is left.
    for number, task in enumerate(reversed(tasks), 1):
        ends_s = began + options.seconds * number / len(tasks)
        result = survived(task, lambda task=task, ends_s=ends_s: plan.result(task, ends_s))
        results.insert(0, result)
        print(task.name, result.get("failed") or speedups(result["race"]), flush=True)
        meta = {**provenance(), **about, "race_clock": asdict(policy)}
        meta["seconds"] = round(time.monotonic() - began, 1)
        content = {"meta": meta, "summary": summary(results), "results": results}
        write_json(options.output, content)
        torch.cuda.empty_cache()
    print(document(content))
    sys.exit(1 if content["summary"]["failed"] else 0)


def survived(task: Task, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a kernel's result, or its error, so that the other kernels still run."""
    try:
        result = guarded("launch", work)
    except AsmtuneError as error:
        result = Failure("tune", "error", str(error))
    if not isinstance(result, Failure):
        return result
    return {**task.facts, "failed": " ".join(str(result).split())}


if __name__ == "__main__":
    main()
