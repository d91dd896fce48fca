"""Task in its own process: tune by asmtune and by the baselines, then compare the winners.

    python -m benchmarks.side_by_side.one KERNELS TASK FOLDER OUTPUT [--most-s S]
        [--parts N]

Its caches of compiled code are empty; the folder may hold the fitted model of `learned`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from asmtune.base.settings import Settings
from asmtune.compile.load import load
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import match_device
from asmtune.core.kernel_module import load_kernel_module
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from benchmarks.harness import caches, write_json
from benchmarks.side_by_side.baselines import Effort, autotuned, exhaustive
from benchmarks.side_by_side.tasks import TASKS, Task


def measure_task(
    task: Task, kernels: Path, folder: Path, effort: Effort
) -> Iterator[dict[str, Any]]:
    """Tune one task in all ways, and time the winners in one fresh interleaved round.

    Yields:
        What is known so far, after each of the ways, so that a cut leaves something.
    """
    import torch

    module = load_kernel_module(str(kernels / f"{task.kernel}.py"))
    problem = module.problem(task.shape, module.dtypes[0], "cuda")
    space = module.space()
    configs = list(dict.fromkeys(space.configs(**problem.shape)))
    device = torch.cuda.get_device_name()
    target = match_device(device)
    assert target is not None, f"no target describes {device}"
    settings = Settings.from_environment()
    result: dict[str, Any] = {**task.to_json(), "configs": len(configs), "device": device}
    result["asmtune"] = _tuned(problem, space)
    yield result
    result["triton.autotune"] = autotuned(problem, configs, effort)
    yield result
    separate = replace(settings, cache_dir=folder / "exhaustive")
    result["exhaustive"] = exhaustive(problem, configs, target, separate)
    chosen = {
        "asmtune": result["asmtune"]["best"],
        "triton.autotune": result["triton.autotune"]["best"],
        "exhaustive": result["exhaustive"]["coarse"]["best"],
    }
    result["retimed_us"] = retimed(problem, chosen, target, settings)
    yield result


def _tuned(problem: Problem, space: Any) -> dict[str, Any]:
    import torch

    from asmtune import tune

    torch.cuda.synchronize()
    start = time.perf_counter()
    record = tune(problem, space, effort="balanced")
    seconds = time.perf_counter() - start
    return {
        "seconds": round(seconds, 2),
        "timed": len(record.measurements),
        "failed": len(record.failures),
        "best": record.winner.to_dict(),
        "best_us": round(record.median_us or 0.0, 3),
    }


def retimed(
    problem: Problem, chosen: dict[str, dict[str, Any]], target: Target, settings: Settings
) -> dict[str, float]:
    """Time each choice anew, in microseconds, in interleaved rounds; equal choices once."""
    from asmtune.measure.timing.clock import GpuClock, Subject
    from asmtune.measure.timing.policy import TimingPolicy
    from asmtune.measure.timing.race import Race

    lowering = Lowering(problem, target, settings.compile_timeout_s)
    policy = TimingPolicy(fine_rounds=60)
    subjects: dict[Config, Subject] = {}
    for values in chosen.values():
        config = Config.from_dict(values)
        launch = load(lowering, config, _artifact(lowering, config, settings))
        assert not isinstance(launch, Failure), launch
        subjects.setdefault(config, Subject(config, launch.run, launch.prepare, always=True))
    outcomes = dict(Race(GpuClock(policy), policy).final(list(subjects.values())))
    times = {}
    for name, values in chosen.items():
        outcome = outcomes[Config.from_dict(values)]
        assert not isinstance(outcome, Failure), outcome
        times[name] = round(outcome.median_us, 3)
    return times


def _artifact(lowering: Lowering, config: Config, settings: Settings) -> Artifact:
    request = lowering.request(config)
    assert not isinstance(request, Failure), request
    artifact = compile_one(request, settings)
    assert isinstance(artifact, Artifact), artifact
    return artifact


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one task and write its result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kernels", type=Path)
    parser.add_argument("task", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--most-s", type=float, default=300.0)
    parser.add_argument("--parts", type=int, default=4)
    options = parser.parse_args(arguments)
    effort = Effort(options.most_s, options.parts)
    os.environ |= caches(options.folder)
    for result in measure_task(TASKS[options.task], options.kernels, options.folder, effort):
        write_json(options.output, result)


if __name__ == "__main__":
    main()
