"""Checks of kernels for their authors: right results, and the cause of wrong ones.

`checks` compares a kernel with a float64 reference on the inputs of `inputs`, by the bounds of
`tolerances`; `pipelines` does so after each stage; `reports` lists the comparisons. `pytest_plugin` brings this into pytest. `diagnose` runs experiments on the
kernels of `subjects` that name the cause of a wrong result: `launches` makes them in a child
process, and `evidence` reads the kernel's TTIR. `new_kernel` writes the files of a new kernel, its
test among them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asmtune.compile.interpreter import import_kernel as import_kernel
    from asmtune.workshop.kernel_checks.checks import KernelChecks as KernelChecks
    from asmtune.workshop.kernel_checks.checks import check_kernel as check_kernel
    from asmtune.workshop.kernel_checks.inputs import odd_shapes as odd_shapes
    from asmtune.workshop.kernel_checks.pipelines import PipelineStage as PipelineStage
    from asmtune.workshop.kernel_checks.pipelines import check_pipeline as check_pipeline
    from asmtune.workshop.kernel_checks.reports import TestReport as TestReport
    from asmtune.workshop.kernel_checks.reports import WrongResultError as WrongResultError
    from asmtune.workshop.kernel_checks.tolerances import Tolerance as Tolerance

_HOMES = {
    "KernelChecks": "asmtune.workshop.kernel_checks.checks",
    "PipelineStage": "asmtune.workshop.kernel_checks.pipelines",
    "TestReport": "asmtune.workshop.kernel_checks.reports",
    "Tolerance": "asmtune.workshop.kernel_checks.tolerances",
    "WrongResultError": "asmtune.workshop.kernel_checks.reports",
    "check_kernel": "asmtune.workshop.kernel_checks.checks",
    "check_pipeline": "asmtune.workshop.kernel_checks.pipelines",
    "import_kernel": "asmtune.compile.interpreter",
    "odd_shapes": "asmtune.workshop.kernel_checks.inputs",
}


def __getattr__(name: str) -> Any:
    # On first use: the commands of this wing are imported with the command line, PyTorch is not.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
