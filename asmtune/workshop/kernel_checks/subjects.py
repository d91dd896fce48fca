"""Kernels to diagnose, modules and plain Triton functions with a reference, and their trials."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import torch

from asmtune.base.child import Child, ChildGoneError, module_command
from asmtune.base.errors import InputError, ProblemError
from asmtune.core.config import Config
from asmtune.core.dtypes import dtype_of
from asmtune.core.failures import required
from asmtune.core.hardware.model import Target
from asmtune.core.inputs.plain_functions import plain_function
from asmtune.core.kernel_module import KernelModule, load_kernel_module
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.measure.checks.effects import tensor_parts
from asmtune.triton_api.interpreter import INTERPRET
from asmtune.triton_api.jit_functions import parameters
from asmtune.workshop.kernel_checks.evidence import evidence_of
from asmtune.workshop.kernel_checks.ties import LEAST_SIZE, Ties

_FEW: Final = 1 << 18
_LARGEST_BLOCK: Final = 8192
_TRIAL_S: Final = 300.0

BY_REFERENCE: Final = "reference: "
"""Prefix of the text where the reference raises."""


@dataclass(frozen=True, kw_only=True)
class DiagnosisRequest:
    """Request to diagnose a kernel.

    Attributes:
        kernel: a kernel module's name or file, or `file.py:function` of a Triton function.
        reference: `file.py:function`, which takes parameters of the kernel by name in float64 and
            returns its outputs; "" for a module's own `reference`.
        shape: sizes to launch at as well; None for those that blocks divide and miss alone.
        dtype: one of the module's; None for its first.
        device: "cuda" or "cpu"; None for a GPU where there is one.
        arguments, grid, axes: of a plain function, as `asmtune prune-report` takes them.
        tolerances: rows of the table of tolerances by the result's dtype.
        outputs: arguments that the reference computes, in order; `t.1` is a part of a tuple. By
            default the module's `OUTPUTS`, or all that the kernel is seen to write.
    """

    kernel: str
    reference: str = ""
    shape: Mapping[str, Any] | None = None
    dtype: str | None = None
    device: str | None = None
    arguments: Sequence[str] = ()
    grid: str | None = None
    axes: Mapping[str, list[Any]] = field(default_factory=dict)
    tolerances: Mapping[str, str] = field(default_factory=dict)
    outputs: Sequence[str] = ()


@dataclass(frozen=True)
class Trial:
    """Launch of a kernel on inputs of its own.

    Attributes:
        shape: the sizes; of a plain function its numbers.
        dtype: of the module's; "" for a plain function.
        config: the config's values and options.
        guard: name of the value around the arguments, of `GUARDS`.
        shifted: puts each argument one element behind an aligned address.
        backwards: runs the programs in the reverse order, under the interpreter.
        arguments: of a plain function: (dtype, shape) of tensors, with a third part where their
            elements are known, and the values of others.
        grid: of a plain function.
    """

    shape: Mapping[str, Any]
    dtype: str
    config: Mapping[str, Any]
    guard: str = "nan"
    shifted: bool = False
    backwards: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)
    grid: tuple[int, ...] = ()


@dataclass(frozen=True)
class TrialResult:
    """The outcome of a trial.

    Attributes:
        excess: error by what is allowed, as `ResultComparison.excess`.
        detail: the worst element; "" if the result is right.
        drift: difference from the first trial of this shape and dtype, by what is allowed.
        touched: what was written around the arguments, a sentence each.
        left: wrong elements of an output that are as they were before the launch, in a sentence.
        refused: why there was no launch: the module or its reference takes no such sizes.
        error: what the launch raised, or how the process ended.
    """

    excess: float = math.inf
    detail: str = ""
    drift: float = 0.0
    touched: tuple[str, ...] = ()
    left: str = ""
    refused: str = ""
    error: str = ""

    @property
    def wrong(self) -> bool:
        """Return whether the result is wrong, or there is none."""
        return not self.refused and not self.excess <= 1


class ModuleSubject:
    """A kernel module's launches."""

    readings: Sequence[Mapping[str, str]] = ({},)
    reading: Mapping[str, str] = {}
    blocks: Sequence[int] = ()
    loose = ""
    kept: Mapping[str, str] = {}

    def __init__(self, request: DiagnosisRequest) -> None:
        self._module: KernelModule = load_kernel_module(request.kernel)
        self.dtype = self._module.check_dtype(request.dtype)
        self.dtypes = self._module.dtypes
        given = request.shape
        self.shape = dict(self._module.check_shape(given or self._module.shapes[0]))
        self.outputs = tuple(getattr(self._module.python, "OUTPUTS", ()))
        self.name = self._module.name
        self.space: Space = self._module.space()

    def problem(self, shape: Mapping[str, Any], dtype: str) -> Problem:
        """Make the launch on meta tensors."""
        return required(self.name, lambda: self._module.problem(shape, dtype, "meta"))

    def trial(self, shape: Mapping[str, Any], dtype: str, config: Config) -> Trial:
        """Describe the launch for another process."""
        return Trial(dict(shape), dtype, config.all_kwargs())


class FunctionSubject:
    """A plain Triton function's launches; other numbers follow from the sizes of its tensors.

    Attributes:
        reading: what each of those numbers is made of, one of `readings`.
    """

    def __init__(self, request: DiagnosisRequest, target: Target) -> None:
        self._request = request
        self.name = request.kernel.rpartition(":")[2]
        problem, self.space = self._made(request.arguments, str(request.grid))
        floats = [d for d in problem.dtypes.values() if d.startswith(("fp", "bf"))]
        self.dtype = floats[0] if floats else next(iter(problem.dtypes.values()), "")
        self.dtypes = (self.dtype, "fp32")
        self.outputs: tuple[str, ...] = ()
        axes = {**self.space.axes}
        fixed = {name: values[0] for name, values in axes.items() if len(values) == 1}
        numbers = {n: v for n, v in {**problem.shape, **fixed}.items() if type(v) is int}
        evidence = evidence_of(problem, self.space.first(**problem.shape), target)
        self._ties = Ties(request.arguments, str(request.grid), numbers, axes, evidence)
        self.shape: Mapping[str, Any] = self._ties.sizes
        self.readings = self._ties.readings
        self.reading = self.readings[0]
        self._zeros = {*evidence.atomics}
        self._parameters = parameters(problem.kernel)

    @property
    def blocks(self) -> list[int]:
        """Return the constexprs among the arguments that are no sizes."""
        names = {p.name for p in self._parameters if p.is_constexpr}
        return [self._ties.numbers[name] for name in names & self._ties.constants(self.reading)]

    @property
    def loose(self) -> str:
        """Name what stays when sizes change: numbers, and a grid; "" if nothing does."""
        names = {p.name for p in self._parameters if not p.is_constexpr}
        numbers = sorted(names & self._ties.constants(self.reading))
        texts = [f"{n}={v}" for n in numbers if (v := self._ties.numbers[n]) >= LEAST_SIZE]
        grid = [] if self._ties.moves_grid(self.reading) else [f"--grid {self._ties.grid}"]
        return ", ".join(texts + grid)

    @property
    def kept(self) -> dict[str, str]:
        """Return the sizes that stay, with the number that bounds their tensors and stays."""
        loose = self.loose.split(", ")
        return {n: one for one in loose for n in self._ties.bounded(one.partition("=")[0])}

    def _made(self, arguments: Sequence[str], grid: str) -> tuple[Problem, Space]:
        return plain_function(self._request.kernel, arguments, grid, self._request.axes)

    def problem(self, shape: Mapping[str, Any], dtype: str) -> Problem:
        """Make the launch on meta tensors."""
        dtypes = {self.dtype: dtype}
        return self._made(self._ties.arguments(shape, self.reading, dtypes), self._ties.grid)[0]

    def trial(self, shape: Mapping[str, Any], dtype: str, config: Config) -> Trial:
        """Describe the launch for another process."""
        problem = self.problem(shape, dtype)
        unsized = [n for n, v in problem.arguments.items() if hasattr(v, "sized")]
        if unsized:
            raise ProblemError(
                f"--arg {unsized[0]}: the size is unknown; give it as "
                f'--arg "{unsized[0]}={dtype}[n]"'
            )
        arguments: dict[str, Any] = {
            name: [dtype_of(value), list(value.shape)] if hasattr(value, "shape") else value
            for name, value in problem.arguments.items()
        }
        for name in self._zeros & arguments.keys():
            arguments[name].append(0)
        for name, table in problem.index_values.items():
            arguments[name].append(table.values.tolist())
        grid = problem.programs(config)
        return Trial(dict(shape), "", config.all_kwargs(), arguments=arguments, grid=grid)


DiagnosisSubject = ModuleSubject | FunctionSubject


class LaunchSizes:
    """Chooses the sizes of small launches by the blocks of a config.

    Attributes:
        names: of the sizes that may be changed.
        kept: sizes that may not, and what does not follow them.
    """

    def __init__(self, subject: DiagnosisSubject, config: Config, most_programs: int) -> None:
        self._subject, self._config, self._most = subject, config, most_programs
        own = subject.shape
        self.kept = {**subject.kept}
        large = (n for n, v in own.items() if type(v) is int and v >= LEAST_SIZE)
        self.names = tuple(name for name in large if name not in self.kept)

    @property
    def _blocks(self) -> list[int]:
        values = (*self._config.kwargs.values(), *self._subject.blocks)
        blocks = (v for v in values if type(v) is int and 0 < v <= _LARGEST_BLOCK)
        return sorted((v for v in blocks if not v & (v - 1)), reverse=True)

    @property
    def two_blocks(self) -> dict[str, int]:
        """Return the sizes as two of the largest blocks each."""
        return dict.fromkeys(self.names, 2 * max([*self._blocks, LEAST_SIZE]))

    def covered(self, shape: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the sizes that a block may cover, as large as it: no program more is for them."""
        whole = {**self._subject.shape, **self.two_blocks}
        count = self._programs(whole)
        free = [n for n in self.names if self._programs({**whole, n: LEAST_SIZE}) == count]
        for block in self._blocks:
            yield dict.fromkeys((name for name in free if shape[name] <= block), block)

    def small(self, sizes: Mapping[str, Any], *, tied: bool = False) -> dict[str, Any]:
        """Halve sizes, and the subject's where none are given, until they make few programs."""
        shape = {**self._subject.shape, **sizes}
        names, own = self.names, self._subject.shape
        groups = [[n for n in names if n == m or (tied and own[n] == own[m])] for m in names]
        while (count := self._programs(shape)) > self._most:
            halves = [
                {**shape, **{n: shape[n] // 2 for n in group}}
                for group in groups
                if shape[group[0]] > LEAST_SIZE
            ]
            fewest = min(halves, key=self._programs, default=shape)
            # The programs of a persistent kernel do not fall, but what each of them does.
            if self._programs(fewest) >= count and (not halves or self.elements(shape) <= _FEW):
                break
            shape = fewest
        return shape

    def apart(self, shape: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return sizes of which no two are equal, odd ones and then such as blocks divide."""
        places = {name: place for place, name in enumerate(self.names)}
        odd = {name: shape[name] + 2 * place + 1 for name, place in places.items()}
        even = {name: shape[name] << place for name, place in places.items()}
        return {**shape, **odd}, {**shape, **even}

    def notes(self) -> list[str]:
        """Say which sizes are not varied, a sentence each."""
        return [f"{name}: not varied, as {why} does not follow" for name, why in self.kept.items()]

    def elements(self, shape: Mapping[str, Any]) -> int:
        """Count the elements of all tensors."""
        problem = self._subject.problem(shape, self._subject.dtype)
        values = tensor_parts(problem.arguments).values()
        return sum(value.numel() for value in values if isinstance(value, torch.Tensor))

    def _programs(self, shape: Mapping[str, Any]) -> int:
        return math.prod(self._subject.problem(shape, self._subject.dtype).programs(self._config))


def load_subject(request: DiagnosisRequest, target: Target) -> DiagnosisSubject:
    """Load the kernel of a request.

    Raises:
        InputError: it is unknown, or the options do not fit it.
    """
    if ":" not in request.kernel:
        return ModuleSubject(request)
    if request.shape is not None or request.dtype is not None:
        raise InputError("--shape and --dtype are for kernel modules; give a function --arg")
    if not request.reference:
        raise InputError(f"{request.kernel} is a plain function: name its --reference file.py:name")
    if request.grid is None:
        raise InputError(f'{request.kernel} is a plain function: give its --grid "cdiv(n, BLOCK)"')
    return FunctionSubject(request, target)


class TrialRunner:
    """Runs trials in a process of their own, which is started again where one ends it.

    Args:
        request: names the device, and kernel and reference for the process.
        name: the kernel's, for messages.
    """

    def __init__(self, request: DiagnosisRequest, name: str) -> None:
        self._request, self._name = request, name
        self._child: Child | None = None

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def result(self, trial: Trial) -> TrialResult:
        """Run a trial.

        Raises:
            ProblemError: the process does not start, or kernel and reference do not fit.
        """
        if self._child is None:
            self._child = self._started()
        try:
            answer = self._answer(self._child, asdict(trial))
        except (ChildGoneError, TimeoutError) as error:
            ended = self._child.kill(5.0 if isinstance(error, ChildGoneError) else 0.0)
            self._child = None
            late = f" after {_TRIAL_S:g} s" if isinstance(error, TimeoutError) else ""
            return TrialResult(error=f"the process {ended}{late}")
        result = TrialResult(**{**answer, "touched": tuple(answer["touched"])})
        if self._request.device == "cuda" and result.error:  # the context may be lost
            self.close()
        return result

    def _started(self) -> Child:
        interpret = {INTERPRET: "1" if self._request.device == "cpu" else "0"}
        program = module_command("asmtune.workshop.kernel_checks.launches")
        child = Child(program, {**os.environ, **interpret})
        try:
            self._answer(child, asdict(self._request))
        except (ChildGoneError, TimeoutError) as error:
            end = child.kill(5.0)
            raise ProblemError(f"{self._name}: the process {end}") from error
        return child

    def _answer(self, child: Child, message: Mapping[str, Any]) -> dict[str, Any]:
        child.send(message)
        answer = child.receive(_TRIAL_S)
        if "refusal" in answer:
            raise ProblemError(f"{self._name}: {answer['refusal']}")
        return answer
