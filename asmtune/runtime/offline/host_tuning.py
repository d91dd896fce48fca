"""Launches of a host function, tuned on this machine's GPU as programs that make them would."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from asmtune.core.failures import of_one_config
from asmtune.core.index_values import is_index
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.user_modules import importable_name
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.offline.drawn_tensors import fill
from asmtune.runtime.offline.kernel_sources import LoadedKernel
from asmtune.runtime.offline.tuning_queue import TuningGpu
from asmtune.runtime.patching.patched_autotuner import convert
from asmtune.triton_api.autotuners import autotuner_in
from asmtune.triton_api.jit_functions import jit_function, python_function
from asmtune.tuning.request import TuningRequest, TuningResult, key_of


@dataclass(frozen=True)
class HostLaunches:
    """Launches on meta tensors; each gets tensors of the GPU when its turn comes.

    A kernel under an autotuner is stored by the key that a program which imports its module looks
    up; a plain kernel by its sizes.

    Attributes:
        launches: with their spaces.
        is_replaced: whether these take the place of an autotuner's own space.
    """

    launches: Sequence[LoadedKernel]
    is_replaced: bool

    def results(self, machine: TuningGpu) -> Iterator[TuningResult]:
        """Tune each launch and yield its result; one that fails stops no other."""
        for loaded in self.launches:
            work = partial(self.request, loaded, machine.device, machine.place)
            request = of_one_config("input", "launch", work)
            if isinstance(request, Failure):
                bare = replace(loaded.problem, arguments={})
                empty = TuningRequest(bare, key_of(loaded.problem, machine.device), loaded.space)
                yield TuningResult(empty, "failed", error=request.detail.splitlines()[0])
            elif autotuner_in(loaded.problem.kernel) is not None:
                yield machine.tuned(request)
            else:
                tuned = machine.tuner.request(request.problem, request.key, request.space)
                (result,) = machine.tuner.results([tuned])
                bare = replace(request.problem, arguments={})
                yield replace(result, request=request.with_arguments_of(bare))

    def request(self, loaded: LoadedKernel, device: str, place: str = "meta") -> TuningRequest:
        """Make the request of a launch on a device, by its driver's name, on tensors of a place."""
        problem = loaded.problem
        if place != "meta":
            problem = replace(problem, arguments=_on_gpu(problem, place))
        for function in (jit_function(problem.kernel), python_function(problem.kernel)):
            function.__module__ = importable_name(function.__module__)
        tuner = autotuner_in(problem.kernel)
        if tuner is None:
            return TuningRequest(problem, key_of(problem, device), loaded.space)
        if isinstance(tuner, AsmAutotuner):
            tuner.reconfigure(tuner.options)  # its function has its name by now
        else:
            tuner = convert(tuner, {})
        named = {name: problem.arguments[name] for name in problem.options}
        values = {name: v for name, v in problem.arguments.items() if name not in named}
        request = tuner.request(values, named, problem.grid, device)
        return replace(request, space=loaded.space) if self.is_replaced else request


def _on_gpu(problem: Problem, place: str) -> dict[str, Any]:
    """Make the arguments on the GPU: random numbers, and of index tensors what is known, or 0."""
    made: dict[int, Any] = {}

    def placed(name: str, value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(placed(name, one) for one in value)
        if hasattr(value, "block_shape"):
            return dataclasses.replace(value, base=placed(name, value.base))
        if not isinstance(value, torch.Tensor) or not value.is_meta:
            return value
        if id(value) not in made:
            filled = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=place
            )
            table = problem.index_table(name) if is_index(value) else ""
            fill(filled, len(made), None if isinstance(table, str) else table.values)
            made[id(value)] = filled
        return made[id(value)]

    return {name: placed(name, value) for name, value in problem.arguments.items()}
