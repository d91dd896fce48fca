"""The eight kernels with their shapes and dtypes, and a problem without its contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton

from asmtune.core.problem import Problem
from asmtune.triton_api.jit_functions import jit_function
from tests.kernels.accuracy import module_of

CONTRACT = "MULTIPLE"
"""Prefixes of the constexprs that tell kernels what divides their sizes."""


@dataclass(frozen=True)
class Task:
    """A kernel at its shape.

    Attributes:
        name: name of the kernel's module, and of its baseline's.
        shape: sizes by the module's names.
        dtype: dtype of the inputs.
    """

    name: str
    shape: Mapping[str, int]
    dtype: str = "fp32"

    @property
    def module(self) -> Any:
        """Import the kernel's module."""
        return module_of(self.name)

    @property
    def facts(self) -> dict[str, Any]:
        """Describe the task, for results."""
        return {"kernel": self.name, "shape": dict(self.shape), "dtype": self.dtype}

    def inputs(self, device: str) -> dict[str, Any]:
        """Make arguments of the public function, the same at every call."""
        torch.manual_seed(0)
        arguments: dict[str, Any] = self.module.inputs(self.shape, self.dtype, device)
        return arguments

    def problem(self, device: str) -> Problem:
        """Make our kernel's launch on these inputs."""
        torch.manual_seed(0)
        problem_: Problem = self.module.problem(self.shape, self.dtype, device)
        return problem_


TASKS = {
    task.name: task
    for task in (
        Task("matmul", {"batch": 1, "M": 256, "N": 512, "K": 256}),
        Task("dropout", {"n": 1_048_576}),
        Task("softmax", {"rows": 1823, "cols": 781}),
        Task("layernorm", {"rows": 1151, "cols": 8192}),
        Task(
            "correlation",
            {"shifts": 5, "channels": 58, "height": 112, "width": 88, "out_shift": 0},
            "i8",
        ),
        Task("resize", {"channels": 3, "height": 512, "width": 512}, "i8"),
        Task("rope", {"seq": 512, "batch": 16, "heads": 8, "dim": 1024}),
        Task("warp", {"channels": 3, "height": 1024, "width": 1024}, "i8"),
    )
}
"""Tasks as in AI-Bench8, by name."""


def contract_of(problem: Problem) -> dict[str, Any]:
    """Give the constexprs by which the kernel knows facts of its arguments, by name."""
    return {name: v for name, v in problem.arguments.items() if name.startswith(CONTRACT)}


def without_contract(problem: Problem) -> Problem:
    """Make the same launch of the general variant, with masks, for any size and address.

    Every contract says that 1 divides, and Triton is kept from looking whether arguments are
    multiples of 16. That a stride is 1 stays known: it is the layout and no contract.
    """
    function = jit_function(problem.kernel)
    general = triton.jit(
        function.fn,
        do_not_specialize=function.do_not_specialize,
        do_not_specialize_on_alignment=[p.name for p in function.params if not p.is_constexpr],
    )
    nothing = dict.fromkeys(contract_of(problem), 1)
    shape = {**problem.shape, **{name: 1 for name in problem.shape if name.startswith(CONTRACT)}}
    return replace(problem, kernel=general, arguments={**problem.arguments, **nothing}, shape=shape)
