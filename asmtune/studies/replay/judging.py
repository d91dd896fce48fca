"""Verdicts on the recorded configs of a file's tasks, as if they had just been asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from asmtune.base.errors import OracleError
from asmtune.core.config import Config
from asmtune.core.failures import required
from asmtune.core.kernel_module import KernelModule, load_kernel_module
from asmtune.core.oracle import Oracle, Task
from asmtune.core.problem import Problem
from asmtune.core.records.verdicts import Verdict
from asmtune.predict.prune.flow import Funnel


@dataclass(frozen=True)
class Judged:
    """A task with verdicts on its rows, in their order.

    Attributes:
        task: the task.
        compiled: by the assembly.
        sketched: by what a compile has before LLVM; empty where it was not asked for.
    """

    task: Task
    compiled: Sequence[Verdict]
    sketched: Sequence[Verdict]


def judged(
    oracle: Oracle, kernels: Path, funnel: Funnel
) -> Iterator[tuple[Task, Sequence[Verdict]]]:
    """Each task of a file with verdicts on its rows, compiled, as they are done.

    Raises:
        OracleError: a kernel's module is missing.
        ProblemError: a module cannot be loaded, or its arguments do not fit.
    """
    for found in judged_moments(oracle, kernels, funnel, early=False):
        yield found.task, found.compiled


def judged_moments(
    oracle: Oracle, kernels: Path, funnel: Funnel, *, early: bool
) -> Iterator[Judged]:
    """Each task of a file with verdicts on its rows, as they are done; if `early` of sketches too.

    Raises:
        OracleError: a kernel's module is missing.
        ProblemError: a module cannot be loaded, or its arguments do not fit.
    """
    modules = {
        name: _module(kernels, name) for name in dict.fromkeys(t.kernel for t in oracle.tasks)
    }
    for task in oracle.tasks:
        module = modules[task.kernel]
        problem = _problem(module, task)
        configs = _with_hooks(task, module, problem)
        front = funnel.front(problem)
        compiled = front.verdicts(configs, "assembly", funnel.known)
        # Sketches come off the artifacts that were just made, so that they cost a reading.
        sketched = front.verdicts(configs, "sketch", funnel.sketches) if early else ()
        yield Judged(task, compiled, sketched)


def _with_hooks(task: Task, module: KernelModule, problem: Problem) -> list[Config]:
    """The recorded configs; where the module's space has an equal one, that, with its hook.

    A file holds no `pre_hook`; without it a tensor descriptor has another block shape.
    """
    hooked = {
        str(config): config
        for config in module.space().configs(**problem.shape)
        if config.pre_hook is not None
    }
    return [hooked.get(str(row.config), row.config) for row in task.rows]


def _problem(module: KernelModule, task: Task) -> Problem:
    # A module of one dtype makes no other, whatever the file calls it.
    one = len(module.dtypes) == 1
    dtype = module.dtypes[0] if one else module.check_dtype(task.dtype)
    return required(task.name, lambda: module.problem(task.shape, dtype, "meta"))


def _module(folder: Path, kernel: str) -> KernelModule:
    path = folder / f"{kernel}.py"
    if not path.is_file():
        raise OracleError(
            f"kernel {kernel!r} of the oracle: no {path}; give its folder by --kernels"
        )
    return load_kernel_module(str(path))
