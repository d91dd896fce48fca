"""Pipelines of kernels, checked after each stage; and device memory that calls do not free."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from asmtune.base.errors import InputError
from asmtune.triton_api.interpreter import exact_floats
from asmtune.workshop.kernel_checks.inputs import converted, copied, widened
from asmtune.workshop.kernel_checks.reports import (
    ResultComparison,
    TestReport,
    as_tuple,
    called,
    compared,
)
from asmtune.workshop.kernel_checks.tolerances import Rows, Tolerance, rows_of


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
    tolerances: Rows | Tolerance = field(default_factory=dict)


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
    values: Any = inputs
    for stage in stages:
        want = as_tuple(stage.reference(*widened(values)))
        with exact_floats():
            values = called(stage.function, *converted(values, copied))
        found.append(compared("stages", stage.name, values, want, rows_of(stage.tolerances)))
        if not found[-1].right:
            break
    wrong = () if found[-1].right else (f"the first wrong stage is {found[-1].name}",)
    return TestReport(" > ".join(stage.name for stage in stages), tuple(found), wrong)


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
    in_use = []
    for count in (2, calls):
        for _ in range(count):
            function()
        gc.collect()  # results that refer to each other are freed by it alone
        torch.cuda.synchronize()
        in_use.append(torch.cuda.memory_allocated())
    grown = in_use[1] - in_use[0]
    detail = f"{grown:,} bytes more are in use after {calls} calls" if grown > 0 else ""
    error = float("inf") if grown > 0 else 0.0
    return TestReport(name, (ResultComparison("leaks", f"{calls} calls", error, detail),))
