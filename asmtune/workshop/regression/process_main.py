"""The process that times the rows of a bench run, once each, in an order of its own.

Run as `python -m asmtune.workshop.regression.process_main`. It imports, then waits for one line of
JSON, the plan. It answers in lines: where it runs, each row's samples or failure, and at the end
the GPU's clocks. Start it early: it has imported by the time that its turn comes.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, TextIO

import torch

from asmtune.base.child import die_with_parent, import_like_parent, own_stdout
from asmtune.base.errors import AsmtuneError, InputError
from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.failures import guarded
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import match_device
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.ir.ttir.analysis import LaunchArguments, analyse
from asmtune.measure.bench.base import BenchSetup, TimingCandidate
from asmtune.measure.bench.gpu import DeviceLostError
from asmtune.measure.bench.local import LocalBench
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.timing.nvml import read_clocks
from asmtune.predict.work_counts import WorkCounts
from asmtune.store.trace.reader import encoded
from asmtune.workshop.regression.compare import environment_here
from asmtune.workshop.regression.processes import problem_of
from asmtune.workshop.regression.run import POLICY, LaunchLoad


def answers(plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Time the rows of a plan and yield messages; end early if the GPU is lost.

    A plan has `rows`, as `row_to_json` makes them, by number, a `seed`, the `path` of the user's
    modules, and `energy` if the board's meter is to be read.
    """
    import_like_parent(plan.get("path", ()))
    here = environment_here()
    yield {"environment": encoded(here)}
    target = match_device(here.gpu)
    if target is None:
        raise InputError(
            f"no target describes the device {here.gpu!r}, and its driver tells too little: put a "
            "descriptor into the folder that ASMTUNE_TARGETS names"
        )
    order = list(plan["rows"].items())
    random.Random(plan["seed"]).shuffle(order)
    for number, row in order:
        yield {"running": number}
        try:
            yield {"row": number, **_timed(row, target, energy=bool(plan.get("energy")))}
        except DeviceLostError as error:
            yield {"row": number, "failure": f"fault at launch: {error.detail}"}
            return
        torch.cuda.empty_cache()
    yield {"clocks": read_clocks()}


def _timed(row: Mapping[str, Any], target: Target, *, energy: bool) -> dict[str, Any]:
    def work() -> Any:
        problem, config = problem_of(row, "cuda")
        return timed(problem, config, target, Settings.from_environment(), energy=energy)

    try:
        outcome = guarded("launch", work)
    except InputError as error:
        return {"failure": str(error)}
    if isinstance(outcome, Failure):
        return {"failure": str(outcome)}
    timing, load, energy_mj = outcome
    read = {} if energy_mj is None else {"energy_mj": energy_mj}
    return {"samples": list(timing.samples_us), "load": encoded(load), **read}


def timed(
    problem: Problem, config: Config, target: Target, settings: Settings, *, energy: bool = False
) -> tuple[Measurement, LaunchLoad, float | None] | Failure:
    """Time a config; its output is not checked, since tuning has done so.

    The problem's tensors hold what they held before. With `energy` the third is millijoules a
    launch; None without a meter.

    Raises:
        MeasureError: there is no GPU, or the config has broken the CUDA context.
        StoreError: artifacts can be written nowhere.
    """
    lowering = Lowering(problem, target, settings.compile_timeout_s)
    request = lowering.request(config)
    if not isinstance(request, LowerRequest):
        return request
    artifact = compile_one(request, settings)
    if isinstance(artifact, Failure):
        return artifact
    work = analyse(request.ttir, LaunchArguments(problem.bind(config), problem.programs(config)))
    effects = Effects.of([work], problem.arguments)
    checks = CheckOptions(check=False)
    setup = BenchSetup(lowering=lowering, effects=effects, checks=checks, policy=POLICY)
    with closing(LocalBench(setup)) as bench:
        candidate = TimingCandidate(config, artifact)
        ((_, outcome),) = bench.final([candidate])
        if isinstance(outcome, Failure):
            return outcome
        counts = WorkCounts.of(work, target, problem.dtypes.values())
        load = LaunchLoad(counts.unit, counts.flops, counts.bytes)
        return outcome, load, bench.energy(candidate) if energy else None


def serve(lines: TextIO, out: TextIO) -> None:
    """Answer the plan that comes in a line; nothing where none comes."""
    line = lines.readline()
    if not line:
        return
    try:
        for message in answers(json.loads(line)):
            out.write(json.dumps(message) + "\n")
            out.flush()
    except AsmtuneError as error:
        out.write(json.dumps({"refused": str(error)}) + "\n")
        out.flush()


def main() -> None:
    """Serve one plan on PyTorch's current GPU."""
    die_with_parent()
    serve(sys.stdin, own_stdout())


if __name__ == "__main__":
    main()
