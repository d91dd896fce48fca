"""Shapes, or a host function's launches, one after another on this machine's GPU.

The tensors of one are in memory at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import torch
from numpy.typing import NDArray

from asmtune.base.errors import InputError, NoGpuError
from asmtune.core.failures import guarded, of_one_config, required
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import match_device
from asmtune.core.index_values import is_index
from asmtune.core.kernel_module import KernelModule, Shape
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.space import Space
from asmtune.core.user_modules import importable_name
from asmtune.measure.timing.nvml import NO_GPU, device_name
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.offline.kernel_sources import (
    LoadedKernel,
    StoredLaunch,
    reference_of,
    tuner_of,
)
from asmtune.runtime.patching.patched_autotuner import convert
from asmtune.triton_api.autotuners import autotuner_in
from asmtune.triton_api.jit_functions import jit_function, python_function
from asmtune.tuning.listener import TuningListener
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.request import TuningRequest, TuningResult, key_of
from asmtune.tuning.tuner import Tuner

_SHARED: Final = ("effort", "isolate", "seed", "force")
"""Choices that are the same for all kernels."""


@dataclass(frozen=True)
class TuningGpu:
    """The GPU that tunes: its name by the driver, and the tensors' place in PyTorch."""

    device: str
    place: str
    tuner: Tuner

    def tuned(self, request: TuningRequest) -> TuningResult:
        """Tune a launch as its kernel's own options say; those of `_SHARED` are this tuner's.

        The result's problem has no tensors.
        """
        shared = {name: getattr(self.tuner.options, name) for name in _SHARED}
        choices: Any = {**request.choices, **shared}
        (result,) = replace(self.tuner, options=TuneOptions.of(choices)).results([request])
        problem = replace(request.problem, arguments={}, shape=request.key.shape)
        return replace(result, request=request.with_arguments_of(problem))


def open_machine(options: TuneOptions, progress: TuningListener) -> TuningGpu:
    """Open this machine's current GPU.

    Raises:
        NoGpuError: there is no GPU.
    """
    device, tuner = Tuner.on_this_gpu(options)
    return TuningGpu(device, "cuda", tuner.with_listener(progress))


def target_here() -> Target:
    """Return the target of the GPU at hand.

    Raises:
        NoGpuError: there is no GPU.
        InputError: no descriptor describes it, and its driver does not tell enough.
    """
    try:
        name = device_name()
    except NoGpuError:
        raise NoGpuError(f"this needs a CUDA GPU; {NO_GPU}") from None
    target = match_device(name)
    if target is None:
        raise InputError(
            f"{name}: no descriptor describes it, and its driver tells too little; give a target"
        )
    return target


@dataclass(frozen=True)
class TuningQueue:
    """Shapes of one kernel and dtype; `reference` is the module's name or path, for the traces."""

    module: KernelModule
    dtype: str
    space: Space
    reference: str

    @classmethod
    def of(cls, module: KernelModule, reference: str, dtype: str | None) -> TuningQueue:
        """Make the queue of a module, by default of its first dtype.

        Raises:
            InputError: the module has no such dtype, or its space cannot be made.
        """
        name = module.check_dtype(dtype)
        space = required(f"space of kernel {module.name}", module.space)
        return cls(module, name, space, reference_of(reference))

    def check(self, shapes: Sequence[Shape]) -> list[Problem]:
        """Make a problem for each shape, on tensors without memory.

        Raises:
            ProblemError: the module cannot make one; names the shape.
        """
        make = self._problem
        return [required(self._what(shape), partial(make, shape, "meta")) for shape in shapes]

    def results(self, problems: Sequence[Problem], machine: TuningGpu) -> Iterator[TuningResult]:
        """Tune each problem and yield its result; one that fails stops no other.

        A result's problem has no tensors, so that those of all shapes are never in memory at once.
        """
        for problem in problems:
            key, _ = self.launched(problem).identity(machine.device)
            request = machine.tuner.request(problem, key, self.space, self.reference)
            yield replace(self._result(request, machine), request=request)

    @property
    def tuner(self) -> AsmAutotuner | None:
        """Find the autotuner of a module's kernel, if the module decorates it."""
        return tuner_of(self.module)

    def launched(self, problem: Problem) -> StoredLaunch:
        """Make the launch as the stores know it."""
        return StoredLaunch(problem, self.space, self.tuner)

    def _result(self, request: TuningRequest, machine: TuningGpu) -> TuningResult:
        shape = request.problem.shape
        problem = guarded("input", partial(self._problem, shape, machine.place))
        if isinstance(problem, Failure):
            first = problem.detail.splitlines()[0]
            return TuningResult(request, "failed", error=f"{self._what(shape)}: {first}")
        (result,) = machine.tuner.results([request.with_arguments_of(problem)])
        if result.outcome == "known":
            result = replace(result, default_us=self._default_us(result))
        return result

    def _default_us(self, result: TuningResult) -> float | None:
        timings = result.record.config_timings if result.record is not None else ()
        default = self.space.first(**result.request.problem.shape)
        return next((m.median_us for m in timings if m.config == default), None)

    def _problem(self, shape: Shape, place: str) -> Problem:
        return self.module.problem(shape, self.dtype, place)

    def _what(self, shape: Shape) -> str:
        words = " ".join(f"{name}={value}" for name, value in shape.items())
        return f"kernel {self.module.name} on {words}"


_PIECE: Final = 1 << 22  # random numbers that are made at once for a dtype that has none


def fill(tensor: Any, seed: int, known: NDArray[Any] | None = None) -> None:
    """Fill the memory that a tensor reaches, gaps between its elements too.

    Args:
        tensor: of integers it holds what is known, or zeros; others hold random numbers.
        seed: of the random numbers.
        known: elements in the order of memory, from the first on; repeated where they are fewer.
    """
    if not tensor.numel():
        return
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.as_strided((reach + 1,), (1,), tensor.storage_offset())
    if known is not None:
        _repeat(flat, torch.from_numpy(known.copy()).to(flat.device))
    elif is_index(tensor):
        flat.zero_()
    else:
        _randomize(flat, torch.Generator(flat.device).manual_seed(seed))


def _repeat(flat: Any, known: Any) -> None:
    for piece in flat.view(known.dtype).split(len(known)):
        piece.copy_(known[: len(piece)])


def _randomize(flat: Any, draw: torch.Generator) -> None:
    """Fill floating-point elements with normally distributed numbers, others with any bytes."""
    if flat.is_complex():
        flat = torch.view_as_real(flat).view(-1)
    if flat.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        flat.normal_(generator=draw)
    elif flat.dtype.is_floating_point and "float4" not in str(flat.dtype):
        for piece in flat.split(_PIECE):
            piece.copy_(torch.randn(len(piece), generator=draw, device=flat.device))
    else:
        flat.view(torch.uint8).random_(0, 256, generator=draw)


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
