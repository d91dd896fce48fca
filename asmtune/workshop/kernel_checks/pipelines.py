"""Pipelines of kernels, checked after each stage."""

from __future__ import annotations

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
