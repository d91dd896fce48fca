"""Seconds of a first tuning that pass without the GPU, and what giving up stragglers costs.

    python -m benchmarks.tune_offline [--output FILE]

Needs no GPU: a stand-in clock takes no time, and a launch does nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.provenance import RESULTS, write

SHAPES: Final = ((256, 256, 256), (512, 128, 512), (128, 512, 256))
LISTS: Final[dict[str, dict[str, int]]] = {
    name: {"rows": 640, "cols": 1024}
    for name in ("softmax", "layernorm", "rmsnorm", "cross_entropy", "layernorm_backward")
}
CONFIGS: Final = 8
DRAWS: Final = 100
NOISE: Final = 0.3
"""Deviation of the logarithm of tile arithmetic from what the assembly predicts."""


@dataclass(frozen=True)
class StandIn:
    """A machine whose launches do nothing, and whose clock says 10 us."""

    name: str = "NVIDIA H200"

    def clock(self, policy: Any) -> StandIn:  # noqa: ARG002 - the protocol's
        """Return itself."""
        return self

    def launch(self, binary: Any, values: Any, pre_hook: Any) -> Any:  # noqa: ARG002
        """Return a launch that does nothing."""
        from asmtune.compile.load import LoadedLaunch

        return LoadedLaunch(lambda: None, lambda: None)

    def synchronize(self) -> None:
        """Do nothing."""

    def warm_up(self, subject: Any) -> None:
        """Do nothing."""

    def round(self, subjects: Sequence[Any]) -> list[float]:
        """Return 10 us each."""
        return [10.0 for _ in subjects]


def tuner(folder: Path) -> Any:
    """Make a tuner over the stand-in, with its caches in a folder; roofline needs no fit."""
    from asmtune.base.settings import Settings
    from asmtune.measure.bench.dedup import DedupBench
    from asmtune.measure.bench.local import LocalBench
    from asmtune.tuning.options import EFFORTS, Choices, TuneOptions
    from asmtune.tuning.tuner import Tuner

    effort = replace(EFFORTS["balanced"], scorer="roofline", caps=0)
    options = TuneOptions.of(Choices(effort=effort, check=False))
    made = Tuner.open(
        StandIn().name, options, replace(Settings.from_environment(), cache_dir=folder)
    )
    made.opener = lambda setup: DedupBench(setup.lowering.problem, LocalBench(setup, StandIn()))
    return made


def short_lists(folder: Path) -> list[dict[str, Any]]:
    """Tune a list of each kernel, one after the other, and compare with its slowest compile."""
    from asmtune.compile.artifacts import ArtifactCache
    from asmtune.core.records.artifacts import Artifact
    from asmtune.core.space.space import Space
    from asmtune.tuning.request import key_of

    own, rows = tuner(folder), []
    cache, seen = ArtifactCache.of(own.funnel.settings), set[str]()
    for name, shape in LISTS.items():
        module = import_module(f"asmtune.kernels.{name}")
        problem = module.problem(shape, "fp16", "cpu")
        configs = list(module.space().configs(**problem.shape))
        listed = random.Random(1).sample(configs, min(CONFIGS, len(configs)))
        request = own.request(problem, key_of(problem, StandIn().name), Space.from_configs(listed))
        start = time.perf_counter()
        own.resolve(request)
        seconds = time.perf_counter() - start
        digests = {o.digest for o in own.funnel.known.values() if hasattr(o, "digest")} - seen
        seen |= digests
        made = [one for digest in digests if isinstance(one := cache.get(digest), Artifact)]
        compiles = [sum(one.seconds.values()) for one in made]
        floor = max(*compiles, sum(compiles) / own.funnel.settings.jobs)
        rows.append(
            {
                "kernel": name,
                "configs": len(listed),
                "seconds": round(seconds, 2),
                "slowest_compile_s": round(max(compiles), 2),
                "floor_s": round(floor, 2),
                "over_floor": round(seconds / floor, 2),
            }
        )
    return rows


def foreseen(folder: Path) -> list[dict[str, Any]]:
    """Judge the GEMM's space before compiling, shape by shape."""
    from asmtune.kernels import tiled_matmul as matmul
    from asmtune.tuning.initial_state import initial_verdicts

    own, rows = tuner(folder), []
    for sizes in SHAPES:
        problem = matmul.problem(dict(zip("MNK", sizes, strict=True)), "fp16", "cpu")
        start, cpu = time.perf_counter(), time.process_time()
        front = own.funnel.front(problem)
        front.warm()
        searched = own.funnel.searched(front, matmul.space())
        configs = searched.configs(matmul.space().first(**problem.shape), problem.shape)
        verdicts = initial_verdicts(own.funnel, front, configs, own.options.effort)
        rows.append(
            {
                "shape": sizes,
                "configs": len(verdicts),
                "sketches": len(own.funnel.sketches),
                "seconds": round(time.perf_counter() - start, 2),
                "cpu_here_s": round(time.process_time() - cpu, 2),
            }
        )
    return rows


PARTS: Final = {"short": short_lists, "foreseen": foreseen}


def offline() -> dict[str, Any]:
    """Run each part in a process of its own, the GEMM in a second one as well."""
    with tempfile.TemporaryDirectory() as folder:
        run = {
            name: _in_a_process(part, folder)
            for name, part in {
                "short_lists": "short",
                "gemm": "foreseen",
                "gemm_in_a_second_process": "foreseen",
            }.items()
        }
    first, second = run["gemm"], run["gemm_in_a_second_process"]
    later = [row["over_floor"] for row in run["short_lists"][1:]]
    ratios = {
        "short_list_over_floor_from_the_second_kernel_on": round(float(np.mean(later)), 2),
        "second_shape_over_first_cpu": round(first[1]["cpu_here_s"] / first[0]["cpu_here_s"], 2),
        "second_process_over_first_s": round(second[0]["seconds"] / first[0]["seconds"], 2),
    }
    return {"ratios": ratios, **run}


def _in_a_process(part: str, folder: str) -> Any:
    code = (
        "import json, sys, pathlib; from benchmarks.tune_offline import PARTS; "
        "print(json.dumps(PARTS[sys.argv[1]](pathlib.Path(sys.argv[2]))))"
    )
    command = [sys.executable, "-c", code, part, folder]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def stragglers() -> list[dict[str, Any]]:
    """Draw lists from recorded tasks, with a config of each that is still compiled at the end.

    The estimates are the roofline's by assembly, with noise. Losses are shares of speed.
    """
    from asmtune.tuning.background_compiler import HOPELESS

    with np.load(RESULTS / "kinds.npz") as data:
        predicted, slowdown = data["base"].astype(float)[:, 0], data["slowdown"].astype(float)
        tasks = json.loads(bytes(data["about"]))["tasks"]
    ends = np.cumsum([0, *(task["rows"] for task in tasks)])
    rows = []
    for factor in (1.0, 1.5, HOPELESS):
        for count in (6, 8, 12, 24):
            for fastest in (False, True):
                draw = np.random.default_rng(0)
                losses = [
                    _loss(predicted[chosen], slowdown[chosen], factor, fastest, draw)
                    for begin, end in pairwise(ends)
                    for chosen in (
                        draw.choice(np.arange(begin, end), min(count, end - begin), replace=False)
                        for _ in range(DRAWS)
                    )
                ]
                lost = [loss for loss in losses if loss is not None]
                rows.append(
                    {
                        "factor": factor,
                        "configs": count,
                        "straggler": "the fastest" if fastest else "any",
                        "given_up": round(len(lost) / len(losses), 4),
                        "mean_loss": round(sum(lost) / len(losses), 5),
                        "most_loss": round(max(lost, default=0.0), 3),
                    }
                )
    return rows


def _loss(
    predicted: Any, slowdown: Any, factor: float, fastest: bool, draw: np.random.Generator
) -> float | None:
    """Return what giving the straggler up costs, as logarithms are given; None if it is not."""
    estimates = predicted + NOISE * draw.standard_normal(len(predicted))
    straggler = int(np.argmin(slowdown)) if fastest else int(draw.integers(len(slowdown)))
    others = np.arange(len(slowdown)) != straggler
    bound = estimates[straggler] + np.min(slowdown[others] - estimates[others])
    best = slowdown[others].min()
    if bound <= best + np.log(factor):
        return None
    return float(1.0 - np.exp(min(0.0, slowdown[straggler] - best)))


def main() -> None:
    """Run both and write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=RESULTS / "tune_offline.json")
    write(parser.parse_args().output, {**offline(), "stragglers": stragglers()})


if __name__ == "__main__":
    main()
