"""Checks of kernels for their authors: right results, and the cause of wrong ones.

`checks` compares a kernel with a float64 reference on the inputs of `inputs`, by the bounds of
`tolerances`; `pipelines` does so after each stage, and finds memory that is not freed; `reports`
lists the comparisons. `pytest_plugin` brings this into pytest. `diagnose` runs experiments on the
kernels of `subjects` that name the cause of a wrong result: `launches` makes them in a child
process, and `evidence` reads the kernel's TTIR. `new_kernel` writes the files of a new kernel, its
test among them.
"""

from __future__ import annotations

from asmtune.compile.interpreter import import_kernel as import_kernel
from asmtune.testing.checks import KernelChecks as KernelChecks
from asmtune.testing.checks import check_kernel as check_kernel
from asmtune.testing.inputs import odd_shapes as odd_shapes
from asmtune.testing.pipelines import PipelineStage as PipelineStage
from asmtune.testing.pipelines import check_leaks as check_leaks
from asmtune.testing.pipelines import check_pipeline as check_pipeline
from asmtune.testing.reports import TestReport as TestReport
from asmtune.testing.reports import WrongResultError as WrongResultError
from asmtune.testing.tolerances import Tolerance as Tolerance
