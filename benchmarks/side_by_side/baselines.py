"""Baselines of asmtune, each on the same problem and configs."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from asmtune.base.settings import Settings
from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.load import load_cached
from asmtune.compile.lower import Lowering
from asmtune.compile.pool import Hooks, compile_configs
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure


@dataclass(frozen=True)
class Effort:
    """Share of each baseline that is run.

    Attributes:
        most_s: seconds above which `triton.autotune` runs only its first part.
        parts: `triton.autotune` first gets a random 1/`parts` of the configs, which tells what all
            would take.
    """

    most_s: float = 300.0
    parts: int = 4


def autotuned(problem: Problem, configs: Sequence[Config], effort: Effort) -> dict[str, Any]:
    """Time `triton.autotune`; a random part, scaled, where all would take too long.

    Args:
        problem: the launch; its kernel is bare.
        configs: the whole space.
        effort: size of the part, and the seconds above which it is all that is run.
    """
    shuffled = random.Random(0).sample(list(configs), len(configs))
    part = -(-len(shuffled) // effort.parts)
    runs = [_autotune(problem, shuffled[:part])]
    whole = part == len(shuffled)
    if not whole and runs[0][0] * len(shuffled) / part <= effort.most_s:
        runs.append(_autotune(problem, shuffled[part:]))
        whole = True
    seconds = sum(taken for taken, _, _ in runs)
    best = min(runs, key=lambda run: run[2])[1]
    return {
        "configs": len(shuffled),
        "run": len(shuffled) if whole else part,
        "share": 1.0 if whole else round(part / len(shuffled), 4),
        "seconds_run": round(seconds, 2),
        "seconds": round(seconds if whole else seconds * len(shuffled) / part, 2),
        "scaled": not whole,
        "best": best.to_dict(),
    }


def _autotune(problem: Problem, configs: Sequence[Config]) -> tuple[float, Config, float]:
    """Give the seconds of the first launch, the config chosen, and its time."""
    import torch
    import triton

    listed = [_triton_config(config) for config in configs]
    kernel = triton.autotune(configs=listed, key=[])(problem.kernel)
    torch.cuda.synchronize()
    start = time.perf_counter()
    kernel[problem.grid](**problem.arguments)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    timing = kernel.configs_timings[kernel.best_config]
    return seconds, Config.of(kernel.best_config), timing[0] if timing else float("inf")


def exhaustive(
    problem: Problem, configs: Sequence[Config], target: Target, settings: Settings
) -> dict[str, Any]:
    """Compile everything in parallel, then time everything as Triton does.

    "coarse" times a config for 5/20 ms; its seconds hold the compile's.
    """
    start = time.perf_counter()
    digests = _compiled(problem, configs, target, settings)
    compiling = time.perf_counter() - start
    lowering = Lowering(problem, target, settings.compile_timeout_s)
    cache = ArtifactCache.of(settings)
    runs = {}
    for config, digest in digests.items():
        cached = load_cached(lowering, config, cache, digest)
        if not isinstance(cached, Failure):
            runs[config] = cached[1]
    result: dict[str, Any] = {"configs": len(configs), "compiled": len(digests)}
    timing, times = _timed(runs)
    best = min(times, key=lambda config: times[config])
    result["coarse"] = {
        "seconds": round(compiling + timing, 2),
        "timing_s": round(timing, 2),
        "best": best.to_dict(),
        "best_us": round(times[best] * 1000, 3),
    }
    return {**result, "compile_s": round(compiling, 2)}


def _median_ms(run: Any) -> float:
    from triton.testing import do_bench

    return float(do_bench(run, warmup=5, rep=20, return_mode="median"))


def _timed(runs: dict[Config, Any]) -> tuple[float, dict[Config, float]]:
    start = time.perf_counter()
    times = {}
    for config, launch in runs.items():
        launch.prepare()
        # Many a config of a space does not launch: too much shared memory, too few registers.
        median_ms = guarded("launch", partial(_median_ms, launch.run))
        if not isinstance(median_ms, Failure):
            times[config] = median_ms
    return time.perf_counter() - start, times


def _compiled(
    problem: Problem, configs: Sequence[Config], target: Target, settings: Settings
) -> dict[Config, str]:
    lowering = Lowering(problem, target, settings.compile_timeout_s)
    hooks = Hooks(_nothing, lambda *_: None)
    outcomes = compile_configs(lowering, configs, hooks, settings)
    return {
        configs[position]: outcome.digest
        for position, outcome in outcomes
        if not isinstance(outcome, Failure)
    }


def _nothing(artifact: Any) -> None:
    """Read nothing from an artifact."""


def _triton_config(config: Config) -> Any:
    import triton

    options = {
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "num_ctas": config.num_ctas,
    }
    return triton.Config(dict(config.kwargs), maxnreg=config.maxnreg, **options)
