"""Collecting ground truth: every config of a kernel's space, timed on this machine's GPU.

The rows have the oracle's form, so that `asmtune model replay` and `asmtune model rows`
take them. Unlike tuning, nothing is pruned: what is slow teaches as much.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from asmtune.compile.artifacts import ArtifactCache
from asmtune.compile.load import load
from asmtune.compile.lower import Lowering
from asmtune.core.config import Config
from asmtune.core.kernel_module import KernelModule, Shape
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Artifact, Failure
from asmtune.core.records.tuned import Measurement
from asmtune.core.records.verdicts import Verdict
from asmtune.measure.timing.clock import GpuClock, Subject
from asmtune.measure.timing.policy import TimingPolicy
from asmtune.measure.timing.race import Race
from asmtune.predict.prune.flow import Funnel

_EVERY_CONFIG: Final = TimingPolicy(
    coarse_rounds=5,
    most_rounds=21,
    contention=1.2,
    hopeless=float("inf"),
    significance=0.0,
    entrant_us=float("inf"),
)


@dataclass(frozen=True)
class Collector:
    """Times whole spaces for the funnel's target, which is this GPU.

    By default nothing is given up before its coarse rounds. After `seconds` no task is started.
    """

    funnel: Funnel
    policy: TimingPolicy = _EVERY_CONFIG
    seconds: float = float("inf")

    def tasks(self, modules: Sequence[KernelModule]) -> Iterator[dict[str, Any]]:
        """Yield a task of the oracle's form for each module, dtype and shape, as it is done.

        The shapes of all modules take turns, so that a budget that runs out costs every module
        its last shapes, and no module all of them. A task whose configs all fail is given as
        well, without any "ms".
        """
        start = time.monotonic()
        for turn in range(max(len(module.shapes) for module in modules)):
            for module in modules:
                if turn >= len(module.shapes):
                    continue
                for dtype in module.dtypes:
                    if time.monotonic() - start > self.seconds:
                        return
                    yield self._task(module, module.shapes[turn], dtype)

    def _task(self, module: KernelModule, shape: Shape, dtype: str) -> dict[str, Any]:
        problem = module.problem(shape, dtype, "cuda")
        configs = list(dict.fromkeys(module.space().configs(**problem.shape)))
        verdicts = self.funnel.judge(problem, configs)
        measured, failures = self._time(problem, verdicts)
        rows = [_row(verdict, measured, failures) for verdict in verdicts]
        return {"kernel": module.name, "shape": dict(shape), "dtype": dtype, "rows": rows}

    def _time(
        self, problem: Problem, verdicts: Sequence[Verdict]
    ) -> tuple[dict[Config, Measurement], dict[Config, Failure]]:
        settings = self.funnel.settings
        lowering = Lowering(problem, self.funnel.target, settings.compile_timeout_s)
        cache = ArtifactCache.of(settings)
        subjects, failures = [], {}
        for verdict in verdicts:
            if not verdict.kept:
                continue
            made, config = cache.get(verdict.artifact or "") or _LOST, verdict.config
            launch = load(lowering, config, made) if isinstance(made, Artifact) else made
            if isinstance(launch, Failure):
                failures[verdict.config] = launch
                continue
            subjects.append(Subject(verdict.config, launch.run, launch.prepare))
        measured = {}
        # Asks nothing of the GPU if no config can run on it.
        outcomes = Race(GpuClock(self.policy), self.policy).trial(subjects) if subjects else []
        for config, outcome in outcomes:
            if isinstance(outcome, Failure):
                failures[config] = outcome
            else:
                measured[config] = outcome
        return measured, failures


_LOST: Final = Failure("launch", "lost", "its artifact is no longer in the cache")


def _row(
    verdict: Verdict,
    measured: dict[Config, Measurement],
    failures: dict[Config, Failure],
) -> dict[str, Any]:
    config = verdict.config.to_dict() | {"maxnreg": verdict.config.maxnreg}
    timing = measured.get(verdict.config)
    if timing is None or verdict.features is None:
        failure = failures.get(verdict.config) or verdict.failure
        reason = str(failure or verdict.reasons[0])
        return {"config": config, "error": reason[:160]}
    return {
        "config": config,
        "ms": round(timing.median_us / 1000, 6),
        "regs": int(verdict.features["regs_per_thread"]),
        "spills": int(verdict.features["spill_words"]),
        "shared": int(verdict.features["shared_bytes"]),
    }
