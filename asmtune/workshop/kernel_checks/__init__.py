"""Checks of kernels for their authors: right results, and the cause of wrong ones.

checks         `check_kernel`: a kernel against a float64 reference on inputs that find faults
inputs         those inputs: special values, layouts, sizes that blocks miss
tolerances     how far a result may lie from the exact one, by its dtype
reports        comparisons and diagnoses as records and text
pytest_plugin  fixtures of pytest
diagnose       experiments that name the cause of a wrong result, on the modules of `subjects`
launches       makes their launches, in a child process
evidence       reads the kernel's TTIR for them
new_kernel     writes the files of a new kernel
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asmtune.workshop.kernel_checks.checks import KernelChecks as KernelChecks
    from asmtune.workshop.kernel_checks.checks import check_kernel as check_kernel
    from asmtune.workshop.kernel_checks.devices import import_kernel as import_kernel
    from asmtune.workshop.kernel_checks.inputs import odd_shapes as odd_shapes
    from asmtune.workshop.kernel_checks.reports import TestReport as TestReport
    from asmtune.workshop.kernel_checks.reports import WrongResultError as WrongResultError
    from asmtune.workshop.kernel_checks.tolerances import Tolerance as Tolerance

_HOMES = {
    "KernelChecks": "asmtune.workshop.kernel_checks.checks",
    "TestReport": "asmtune.workshop.kernel_checks.reports",
    "Tolerance": "asmtune.workshop.kernel_checks.tolerances",
    "WrongResultError": "asmtune.workshop.kernel_checks.reports",
    "check_kernel": "asmtune.workshop.kernel_checks.checks",
    "import_kernel": "asmtune.workshop.kernel_checks.devices",
    "odd_shapes": "asmtune.workshop.kernel_checks.inputs",
}


def __getattr__(name: str) -> Any:
    # On first use: the commands of this wing are imported with the command line, PyTorch is not.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
