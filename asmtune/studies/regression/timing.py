"""Compiles and times one config in this process, as tuning times finalists."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import Any, Final

from asmtune.base.settings import Settings
from asmtune.compile.lower import Lowering, LowerRequest
from asmtune.compile.pool import compile_one
from asmtune.core.config import Config
from asmtune.core.hardware.model import Target
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.records.tuned import Measurement
from asmtune.ir.ttir.analysis import LaunchArguments, analyse
from asmtune.measure.bench.base import BenchSetup, TimingCandidate
from asmtune.measure.bench.local import LocalBench
from asmtune.measure.checks.effects import Effects
from asmtune.measure.checks.roles import CheckOptions
from asmtune.measure.timing.policy import TimingPolicy

POLICY: Final = TimingPolicy()
"""L2 cold, events, 20 samples of a config and up to 60 where they are not steady."""

_COMPARED_FIELDS: Final = ("mode", "flush_bytes", "launches", "warmup_us")


def timing_words() -> dict[str, Any]:
    """Returns the parts of the policy that two runs must share to be compared."""
    values = asdict(POLICY)
    return {name: values[name] for name in _COMPARED_FIELDS}


def timed(
    problem: Problem, config: Config, target: Target, settings: Settings
) -> Measurement | Failure:
    """Times a config; its output is not checked, since tuning has done so.

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
    setup = BenchSetup(
        lowering=lowering,
        effects=Effects.of([work], problem.arguments),
        checks=CheckOptions(check=False),
        policy=POLICY,
    )
    with closing(LocalBench(setup)) as bench:
        ((_, outcome),) = bench.final([TimingCandidate(config, artifact)])
    return outcome
