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
from contextlib import closing, suppress
from typing import Any, Final, TextIO

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
from asmtune.measure.bench.local import LocalBench
from asmtune.measure.bench.trials import DeviceLostError
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from asmtune.predict.work_counts import WorkCounts
from asmtune.store.trace.reader import encoded
from asmtune.workshop.regression.compare import environment_here
from asmtune.workshop.regression.plan import problem_of
from asmtune.workshop.regression.run import POLICY, LaunchLoad

HINDRANCES: Final = {
    1 << 2: "power cap",
    1 << 3: "hardware slowdown",
    1 << 5: "software thermal slowdown",
    1 << 6: "hardware thermal slowdown",
    1 << 7: "power brake",
}
"""Reasons that hold clocks back, by bit (nvml.h, nvmlClocksEventReason*)."""


def read_clocks() -> dict[str, Any]:
    """Read how PyTorch's current GPU runs at this moment, which may explain a timing.

    Returns:
        `sm_mhz`, and `throttled_by`, a list of reasons. Values that the device does not report are
        left out. Empty without `nvidia-ml-py`, its driver or a GPU.
    """
    try:
        import pynvml
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    readings: dict[str, Any] = {}
    # What a device does not support raises: what was read before stays.
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        # Not by index, which CUDA_VISIBLE_DEVICES changes for CUDA alone.
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        readings["sm_mhz"] = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
        bits = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        readings["throttled_by"] = [text for bit, text in HINDRANCES.items() if bits & bit]
    return readings


def answers(plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Time the rows of a plan and yield messages; end early if the GPU is lost.

    A plan has `rows`, as `row_to_json` makes them, by number, a `seed`, and the `path` of the
    user's modules.
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
            yield {"row": number, **_timed(row, target)}
        except DeviceLostError as error:
            yield {"row": number, "failure": f"fault at launch: {error.detail}"}
            return
        torch.cuda.empty_cache()
    yield {"clocks": read_clocks()}


def _timed(row: Mapping[str, Any], target: Target) -> dict[str, Any]:
    def work() -> Any:
        problem, config = problem_of(row, "cuda")
        return timed(problem, config, target, Settings.from_environment())

    try:
        outcome = guarded("launch", work)
    except InputError as error:
        return {"failure": str(error)}
    if isinstance(outcome, Failure):
        return {"failure": str(outcome)}
    timing, load = outcome
    return {"samples": list(timing.samples_us), "load": encoded(load)}


def timed(
    problem: Problem, config: Config, target: Target, settings: Settings
) -> tuple[Measurement, LaunchLoad] | Failure:
    """Time a config; its output is not checked, since tuning has done so.

    The problem's tensors hold what they held before.

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
        ((_, outcome),) = bench.final([TimingCandidate(config, artifact)])
        if isinstance(outcome, Failure):
            return outcome
        counts = WorkCounts.of(work, target, problem.dtypes.values())
        return outcome, LaunchLoad(counts.unit, counts.flops, counts.bytes)


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
