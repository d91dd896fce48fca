"""Pipelines of kernels, checked after each stage; and device memory that calls do not free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from asmtune.base.errors import InputError
from asmtune.core.failures import guarded
from asmtune.core.records.artifacts import Failure
from asmtune.testing.inputs import widened_value
from asmtune.testing.reports import ResultComparison, TestReport, as_tuple, compared
from asmtune.testing.tolerances import Rows

_WARM_UP: Final = 2


@dataclass(frozen=True)
class PipelineStage:
    """A kernel of a pipeline. It takes the results of the stage before as its arguments.

    Attributes:
        name: in the report.
        function: the kernel.
        reference: computes the same from float64 tensors.
        tolerances: as `KernelChecks.tolerances`, for this stage's results.
    """

    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    tolerances: Rows = field(default_factory=dict)


def check_pipeline(stages: Sequence[PipelineStage], *inputs: torch.Tensor) -> TestReport:
    """Run kernels one after another, and compare after each.

    A stage gets the results of the kernels before it, and is compared with its reference on the
    same values in float64: an error shows at the stage that makes it. What follows a wrong stage is
    not run.

    Args:
        stages: in the order in which they run.
        inputs: arguments of the first.

    Returns:
        A comparison for each stage; the notes name the first wrong one.

    Raises:
        InputError: there is no stage.
    """
    if not stages:
        raise InputError("check_pipeline: give at least one stage")
    found: list[ResultComparison] = []
    notes: tuple[str, ...] = ()
    values: tuple[Any, ...] = inputs
    for stage in stages:
        want = as_tuple(stage.reference(*map(widened_value, values)))
        got = _run(stage, values)
        found.append(_judged(stage, got, want))
        if isinstance(got, Failure) or not found[-1].right:
            notes = (f"the first wrong stage is {stage.name}",)
            break
        values = got
    return TestReport(" > ".join(stage.name for stage in stages), tuple(found), notes)


def _run(stage: PipelineStage, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...] | Failure:
    with torch.no_grad():
        return guarded("call", lambda: tuple(x.clone() for x in as_tuple(stage.function(*inputs))))


def _judged(
    stage: PipelineStage,
    got: tuple[torch.Tensor, ...] | Failure,
    want: Sequence[torch.Tensor],
) -> ResultComparison:
    if isinstance(got, Failure):
        return ResultComparison("stages", stage.name, float("inf"), got.detail.splitlines()[0])
    return compared("stages", stage.name, got, want, stage.tolerances)


def check_leaks(function: Callable[[], Any], calls: int = 20) -> TestReport:
    """Compare the device memory in use before and after calls, whose results are dropped.

    Args:
        function: a call with its arguments.
        calls: how many to make, after two that fill caches.

    Returns:
        One comparison; wrong if the memory grows. A note instead where there is no CUDA device.
    """
    name = getattr(function, "__name__", "function")
    if not torch.cuda.is_available():
        note = "device memory was not checked: this machine has no CUDA device"
        return TestReport(name, (), (note,))
    for _ in range(_WARM_UP):
        function()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(calls):
        function()
    torch.cuda.synchronize()
    grown = torch.cuda.memory_allocated() - before
    detail = f"{grown:,} bytes more are in use after {calls} calls" if grown > 0 else ""
    error = float("inf") if grown > 0 else 0.0
    found = ResultComparison("leaks", f"{calls} calls", error, detail)
    return TestReport(name, (found,))
