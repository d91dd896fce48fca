"""Shapes one after another on this machine's GPU; the tensors of one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from asmtune.base.errors import InputError, NoGpuError
from asmtune.core.failures import guarded, required
from asmtune.core.hardware.model import Target
from asmtune.core.hardware.shipped import match_device
from asmtune.core.kernel_module import KernelModule, Shape
from asmtune.core.problem import Problem
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.space import Space
from asmtune.measure.timing.nvml import NO_GPU, device_name
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.offline.kernel_sources import StoredLaunch, reference_of, tuner_of
from asmtune.tuning.listener import TuningListener
from asmtune.tuning.options import TuneOptions
from asmtune.tuning.request import TuningRequest, TuningResult
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


def open_machine(
    options: TuneOptions, progress: TuningListener, target: Target | None = None
) -> TuningGpu:
    """Open this machine's current GPU; ranks by `target` if given.

    Raises:
        NoGpuError: there is no GPU.
    """
    device, tuner = Tuner.on_this_gpu(options, target)
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
