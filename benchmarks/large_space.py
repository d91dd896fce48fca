"""Tuning of a space of 10,368 GEMM configs: how long it takes, and how good the choice is.

    python -m benchmarks.large_space [--shape M,N,K] [--random N] [--output FILE]

Needs a GPU. The choice is compared with the best of a random sample of the space, each config of
which is compiled, unless that takes over 8 s, and timed for 5/20 ms as Triton does; both are then
timed anew in interleaved rounds. Caches of compiled code are empty; the model of `learned` is
fitted before.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from asmtune.base.settings import Settings
from asmtune.core.config import Config
from asmtune.core.hardware.shipped import match_device
from asmtune.core.space.space import Space
from asmtune.kernels import tiled_matmul as matmul
from asmtune.store.trace.reader import read_trace
from asmtune.store.trace.run import run_files
from benchmarks.harness import empty_caches, fitted, parser, write
from benchmarks.side_by_side.baselines import exhaustive
from benchmarks.side_by_side.one import retimed

SHAPE = (4096, 4096, 4096)


def space() -> Space:
    """Build 4 x 4 x 3 tiles, 4 group heights, 3 warp counts, 6 stages, 3 caps: 10,368 configs."""
    axes: dict[str, Any] = {
        "BLOCK_M": (32, 64, 128, 256),
        "BLOCK_N": (32, 64, 128, 256),
        "BLOCK_K": (32, 64, 128),
        "GROUP_M": (1, 4, 8, 16),
        "num_warps": (2, 4, 8),
        "num_stages": (1, 2, 3, 4, 5, 6),
        "maxnreg": (None, 128, 232),
    }
    default = Config(matmul.DEFAULT.kwargs, num_warps=4, num_stages=3)
    return Space(axes, default=default)


def measured(sizes: tuple[int, int, int], sample: int, folder: Path) -> dict[str, Any]:
    """Tune the space, time a sample of it, and compare."""
    import torch

    from asmtune import tune

    shape = dict(zip("MNK", sizes, strict=True))
    problem = matmul.problem(shape, "fp16", "cuda")
    configs = list(space().configs(**shape))
    target = match_device(torch.cuda.get_device_name())
    assert target is not None
    torch.cuda.synchronize()
    start = time.perf_counter()
    record = tune(problem, space(), effort="balanced")
    seconds = time.perf_counter() - start
    print({"configs": len(configs), "seconds": round(seconds, 2), "us": record.median_us})
    settings = Settings.from_environment()
    run = read_trace(run_files(settings.runs_dir)[-1])
    chosen = random.Random(0).sample(configs, sample)
    # Tiles of 256 x 256 in two warps spill for minutes of compiling.
    separate = replace(settings, cache_dir=folder / "random", compile_timeout_s=8.0)
    baseline = exhaustive(problem, chosen, target, separate)
    choices = {"asmtune": record.winner.to_dict(), "random": baseline["coarse"]["best"]}
    times = retimed(problem, choices, target, settings)
    return {
        "shape": shape,
        "configs": len(configs),
        "seconds": round(seconds, 2),
        "stages": dict(run.stages),
        "compiled": run.ending.compiled if run.ending else None,
        "timed": len(record.measurements),
        "failed": len(record.failures),
        "best": record.winner.to_dict(),
        "random": {"sample": sample, **baseline},
        "retimed_us": times,
        "speed": round(times["random"] / times["asmtune"], 4),
    }


def main() -> None:
    """Run the benchmark and write the result."""
    arguments = parser(__doc__, "large_space.json")
    arguments.add_argument("--shape", default=",".join(map(str, SHAPE)))
    arguments.add_argument("--random", type=int, default=1500)
    options = arguments.parse_args()
    m, n, k = map(int, options.shape.split(","))
    with empty_caches() as folder:
        fit_s = round(fitted(Settings.from_environment().cache_dir), 2)
        result = measured((m, n, k), options.random, folder)
    write(options.output, {"fit_of_learned_s": fit_s, **result})
    print({name: result[name] for name in ("configs", "seconds", "timed", "speed", "retimed_us")})


if __name__ == "__main__":
    main()
