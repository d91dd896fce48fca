"""asmtune against `triton.autotune` and against timing everything, on one machine in one run.

    python -m benchmarks.side_by_side KERNELS [--most-s S] [--parts N] [--seconds S] [--resume]
        [--output FILE]

KERNELS is a folder with the oracle's kernels. Needs a GPU. Each task runs in a process of its own,
whose caches of compiled code are empty; none begins after `--seconds`, and `--resume` goes on with
those that the file lacks.

Where `triton.autotune` would take more than `--most-s`, a random 1/`--parts` of the configs is run,
and its seconds are scaled: each such task says `scaled`, how many configs it ran (`run`), and their
`share`. The winners of all ways are timed once more, interleaved.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.runtime.calls import as_triton
from asmtune.workshop.replay.results import geometric_mean
from benchmarks.harness import (
    caches,
    child,
    device_of,
    loaded,
    parser,
    raced,
    table,
    target_of,
    until,
    write,
)

TASKS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("gemm", {"M": 4096, "N": 4096, "K": 4096}),
    ("layernorm", {"rows": 4096, "cols": 4096}),
    ("gemm", {"M": 1024, "N": 16384, "K": 1024}),
    ("broadcast_relu", {"P": 8192, "D": 4096}),
    ("attention", {"B": 4, "H": 16, "N": 1024, "D": 64, "causal": False}),
    ("layernorm", {"rows": 512, "cols": 4096}),
    ("gemm_bias_gelu", {"M": 2048, "N": 4096, "K": 1024}),
    ("broadcast_relu", {"P": 65536, "D": 256}),
)
"""Kernels and shapes. Softmax is left out: one of its configs keeps a compiler without a limit busy
for minutes."""

_BASELINES: Final = ("autotune", "exhaustive_5_20")


def measured(kernels: Path, number: int, options: argparse.Namespace) -> dict[str, Any]:
    """Tune one task in all ways, and time the winners in one fresh interleaved round."""
    import torch

    from asmtune import tune
    from asmtune.core.kernel_module import load_kernel_module
    from asmtune.measure.timing.policy import TimingPolicy

    kernel, shape = TASKS[number]
    module = load_kernel_module(str(kernels / f"{kernel}.py"))
    problem, space = module.problem(shape, module.dtypes[0], "cuda"), module.space()
    configs = list(dict.fromkeys(space.configs(**problem.shape)))
    target = target_of(torch.cuda.get_device_name())
    torch.cuda.synchronize()
    start = time.perf_counter()
    record = tune(problem, space, effort="balanced")
    ours = {"seconds": round(time.perf_counter() - start, 2), "timed": len(record.measurements)}
    by_triton, triton_best = autotuned(problem, configs, options.most_s, options.parts)
    everything, best = exhaustive(problem, configs, target)
    chosen = {"asmtune": record.winner, "triton.autotune": triton_best, "exhaustive": best}
    runs = {name: _run(problem, config, target) for name, config in chosen.items()}
    outcomes = raced(runs, TimingPolicy(fine_rounds=60))
    times = {
        name: round(found.median_us, 3)
        for name, found in outcomes.items()
        if isinstance(found, Measurement)
    }
    return {
        "kernel": kernel,
        "shape": shape,
        "configs": len(configs),
        "asmtune": ours,
        "triton.autotune": by_triton,
        "exhaustive": everything,
        "chosen": {name: config.to_dict() for name, config in chosen.items()},
        "retimed_us": times,
    }


def _run(problem: Problem, config: Config, target: Target) -> Any:
    launch = loaded(problem, config, target, Settings.from_environment())
    assert not isinstance(launch, Failure), launch
    launch.prepare()
    return launch.run


def autotuned(
    problem: Problem, configs: Sequence[Config], most_s: float, parts: int
) -> tuple[dict[str, Any], Config]:
    """Time `triton.autotune`; a random part, scaled, where all would take over `most_s`.

    Args:
        problem: the launch; its kernel is bare.
        configs: the whole space.
        most_s: seconds above which the first part is all that is run.
        parts: the first part has 1/`parts` of the configs.
    """
    shuffled = random.Random(0).sample(list(configs), len(configs))
    part = -(-len(shuffled) // parts)
    runs = [_autotune(problem, shuffled[:part])]
    whole = part == len(shuffled)
    if not whole and runs[0][0] * len(shuffled) / part <= most_s:
        runs.append(_autotune(problem, shuffled[part:]))
        whole = True
    seconds = sum(taken for taken, _, _ in runs)
    row = {
        "configs": len(shuffled),
        "run": len(shuffled) if whole else part,
        "share": 1.0 if whole else round(part / len(shuffled), 4),
        "seconds_run": round(seconds, 2),
        "seconds": round(seconds if whole else seconds * len(shuffled) / part, 2),
        "scaled": not whole,
    }
    return row, min(runs, key=lambda run: run[2])[1]


def _autotune(problem: Problem, configs: Sequence[Config]) -> tuple[float, Config, float]:
    """Give the seconds of the first launch, the config chosen, and its time."""
    import torch
    import triton

    kernel = triton.autotune(configs=[*map(as_triton, configs)], key=[])(problem.kernel)
    torch.cuda.synchronize()
    start = time.perf_counter()
    kernel[problem.grid](**problem.arguments)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    timing = kernel.configs_timings[kernel.best_config]
    return seconds, Config.of(kernel.best_config), timing[0] if timing else float("inf")


def exhaustive(
    problem: Problem, configs: Sequence[Config], target: Target
) -> tuple[dict[str, Any], Config]:
    """Compile everything in parallel into caches of its own, then time each for 5/20 ms."""
    from dataclasses import replace

    from triton.testing import do_bench

    from asmtune.compile.lower import Lowering
    from asmtune.compile.pool import Hooks, compile_configs

    with tempfile.TemporaryDirectory() as folder:
        settings = replace(Settings.from_environment(), cache_dir=Path(folder))
        start = time.perf_counter()
        hooks = Hooks(lambda _: None, lambda *_: None)
        lowering = Lowering(problem, target, settings.compile_timeout_s)
        made = [
            configs[place]
            for place, outcome in compile_configs(lowering, configs, hooks, settings)
            if not isinstance(outcome, Failure)
        ]
        compile_s = time.perf_counter() - start
        launches = {config: loaded(problem, config, target, settings) for config in made}
        start = time.perf_counter()
        times = {}
        for config, launch in launches.items():
            # Many a config of a space does not launch: too much shared memory, too few registers.
            if isinstance(launch, Failure):
                continue
            launch.prepare()
            bench = partial(do_bench, launch.run, warmup=5, rep=20, return_mode="median")
            if not isinstance(median_ms := guarded("launch", bench), Failure):
                times[config] = median_ms
        seconds = compile_s + time.perf_counter() - start
    coarse = {"seconds": round(seconds, 2), "timing_s": round(seconds - compile_s, 2)}
    return {"compiled": len(made), "coarse": coarse}, min(times, key=times.__getitem__)


def ratios(task: Mapping[str, Any]) -> dict[str, float]:
    """Compute for a task the factor in wall clock against each baseline, and the relative speed.

    The speed is that of the best of all configs, by 5/20 ms, over that of the choice.
    """
    took, times = _seconds(task), task["retimed_us"]
    return {
        **{name: took[name] / took["asmtune"] for name in _BASELINES},
        "speed": times["exhaustive"] / times["asmtune"],
        "speed_over_autotune": times["triton.autotune"] / times["asmtune"],
    }


def summary(tasks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compute geometric means and worst cases over the tasks, and the sums of seconds."""
    whole = [ratios(task) for task in tasks]
    result: dict[str, Any] = {"tasks": len(whole), "of": len(TASKS)}
    for name in (*_BASELINES, "speed", "speed_over_autotune"):
        values = [one[name] for one in whole]
        means = {"geomean": geometric_mean(values), "worst": min(values)}
        result[name] = {key: round(value, 4) for key, value in means.items()}
    took = [_seconds(task) for task in tasks]
    names = ("asmtune", *_BASELINES)
    result["seconds"] = {name: round(sum(one[name] for one in took), 1) for name in names}
    return result


def _seconds(task: Mapping[str, Any]) -> dict[str, float]:
    """Read the seconds of asmtune and of each baseline."""
    return {
        "asmtune": task["asmtune"]["seconds"],
        "autotune": task["triton.autotune"]["seconds"],
        "exhaustive_5_20": task["exhaustive"]["coarse"]["seconds"],
    }


_NAMES: Final = {
    "gemm": "GEMM",
    "gemm_bias_gelu": "GEMM + bias + GELU",
    "attention": "attention",
    "layernorm": "layer norm",
    "broadcast_relu": "broadcast + ReLU",
}

STAR: Final = " *"


def document(content: Mapping[str, Any]) -> str:
    """Tabulate the seconds of whole tunings, and say what was scaled."""
    tasks, means, cores = content["tasks"], content["summary"], content["cores_a_lane"]
    total, speed = means["seconds"], means["speed"]
    share = f"{speed['geomean']:.3f} (worst {speed['worst']:.3f})"
    label = f"{means['tasks']} tasks of {len({task['kernel'] for task in tasks})} kernels"
    star = STAR if _scaled(tasks) else ""
    seconds = [f"{total['autotune']:,.0f} s{star}", f"{total['exhaustive_5_20']:.0f} s"]
    heads = (f"{device_of(content)}, {cores} cores, caches empty", "`triton.autotune`")
    heads += (f"all compiled by {cores}, timed 5/20 ms", "asmtune")
    heads += ("speed of the config chosen, best of all timed 5/20 ms = 1",)
    rows = [*map(_task, tasks), [label, *seconds, f"{total['asmtune']:.0f} s", share]]
    return "\n\n".join([table(heads, rows), *_notes(content)])


def _task(task: Mapping[str, Any]) -> list[str]:
    sizes = [str(size) for size in task["shape"].values() if not isinstance(size, bool)]
    by_triton, times = task["triton.autotune"], task["retimed_us"]
    star = STAR if by_triton.get("scaled") else ""
    return [
        f"{_NAMES[task['kernel']]} {', '.join(sizes)}, {task['configs']} configs",
        f"{by_triton['seconds']:.0f} s{star}",
        f"{task['exhaustive']['coarse']['seconds']:.0f} s",
        f"{task['asmtune']['seconds']:.1f} s",
        f"{times['exhaustive'] / times['asmtune']:.3f}",
    ]


def _notes(content: Mapping[str, Any]) -> Iterator[str]:
    """Say what was scaled, how many seconds were run for it, and what a fit of the model took.

    Until 2026-11-28 the model was fitted on first use, before the tasks.
    """
    if scaled := _scaled(content["tasks"]):
        share = sum(one["run"] for one in scaled) / sum(one["configs"] for one in scaled)
        yield (
            f"`*` Scaled: a random {share:.0%} of the configs was run, where all would take over "
            f"{content.get('scaled_above_s', 300):.0f} s, and its choice is the best of those. "
            f"{sum(one['seconds'] for one in scaled):,.0f} s are scaled, for which "
            f"{sum(one['seconds_run'] for one in scaled):,.0f} s were run."
        )
    if fit_s := content.get("fit_of_learned_s"):
        yield f"`learned` was fitted once an installation then, which took {fit_s:.1f} s more."


def _scaled(tasks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [task["triton.autotune"] for task in tasks if task["triton.autotune"].get("scaled")]


def run_all(options: argparse.Namespace) -> None:
    """Run the tasks that the file lacks, a process each, and write the results after each."""
    tasks: list[dict[str, Any]] = []
    if options.resume and options.output.exists():
        tasks = json.loads(options.output.read_text())["tasks"]
    done = [(task["kernel"], task["shape"]) for task in tasks]
    left = [number for number, task in enumerate(TASKS) if task not in done]
    about = {"cores_a_lane": len(os.sched_getaffinity(0)), "scaled_above_s": options.most_s}
    about |= {"first_part": 1 / options.parts}
    words = [str(options.kernels), "--most-s", str(options.most_s), "--parts", str(options.parts)]
    for number in until(left, options.seconds, "--resume goes on"):
        with tempfile.TemporaryDirectory() as folder:
            places = caches(Path(folder))
            tasks.append(child("benchmarks.side_by_side", *words, "--task", str(number), **places))
        tasks.sort(key=lambda task: TASKS.index((task["kernel"], task["shape"])))
        content = write(options.output, {**about, "summary": summary(tasks), "tasks": tasks})
        print(document(content), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one task and print it, or all that are left."""
    options_ = parser(__doc__, "side_by_side.json")
    options_.add_argument("kernels", type=Path)
    options_.add_argument("--most-s", type=float, default=300.0)
    options_.add_argument("--parts", type=int, default=4)
    options_.add_argument("--seconds", type=float, help="after which no task begins")
    options_.add_argument("--resume", action="store_true", help="keep the file's tasks")
    options_.add_argument("--task", type=int, help=argparse.SUPPRESS)
    options = options_.parse_args(arguments)
    if options.parts < 1:
        options_.error(f"--parts {options.parts}: at least 1")
    if options.task is not None:
        print(json.dumps(measured(options.kernels, options.task, options)))
        return
    run_all(options)


if __name__ == "__main__":
    main()
