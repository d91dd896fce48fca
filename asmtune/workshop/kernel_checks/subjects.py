"""Kernel modules to diagnose, and their trials in a process of their own."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import torch

from asmtune.base.child import Child, ChildGoneError, module_command
from asmtune.base.errors import InputError, ProblemError
from asmtune.cli.kernel_arguments import KernelArguments
from asmtune.core.assumed_import import importing_for
from asmtune.core.config import Config
from asmtune.core.failures import required
from asmtune.core.hardware.shipped import load_target
from asmtune.core.inputs.shapes import named_text, unique
from asmtune.core.kernel_module import KernelModule, load_kernel_module, load_named
from asmtune.core.problem import Problem
from asmtune.core.space.space import Space
from asmtune.measure.checks.effects import tensor_parts
from asmtune.runtime.offline.host_functions import assumed_gpu, is_host_function
from asmtune.runtime.offline.kernel_sources import LoadedKernel
from asmtune.triton_api.interpreter import INTERPRET
from asmtune.triton_api.jit_functions import constexprs

_FEW: Final = 1 << 18
_LARGEST_BLOCK: Final = 8192
LEAST_SIZE: Final = 16
_TRIAL_S: Final = 300.0

BY_REFERENCE: Final = "reference: "
"""Prefix of the text where the reference raises."""


@dataclass(frozen=True, kw_only=True)
class DiagnosisRequest:
    """Request to diagnose a kernel.

    Attributes:
        kernel: a kernel module's name or file; its `reference(arguments)` gives the outputs. Or a
            host function, `file.py:function`.
        shape: sizes to launch at as well; None for those that blocks divide and miss alone.
        dtype: one of the module's; None for its first.
        device: "cuda" or "cpu"; None for a GPU where there is one.
        tolerances: rows of the table of tolerances by the result's dtype.
        outputs: arguments that the reference computes, in order; `t.1` is a part of a tuple. By
            default the module's `OUTPUTS`, or all that the kernel is seen to write.
        values: arguments of a host function, "name=value" each.
        only: the kernel of its launch, where it makes several.
        reference: `file.py:function` in place of the module's. Without it, results of a host
            function are compared with one another.
        target: the GPU that a host function finds.
    """

    kernel: str
    shape: Mapping[str, Any] | None = None
    dtype: str | None = None
    device: str | None = None
    tolerances: Mapping[str, str] = field(default_factory=dict)
    outputs: Sequence[str] = ()
    values: Sequence[str] = ()
    only: str | None = None
    reference: str | None = None
    target: str = "H200"

    def module(self) -> KernelModule:
        """Load the kernel module, or make one of the launch of a host function."""
        return _module_of_host(self) if ":" in self.kernel else load_kernel_module(self.kernel)


def _module_of_host(request: DiagnosisRequest) -> KernelModule:
    texts, sizes = named_sizes(request.values, LEAST_SIZE)
    target = load_target(request.target)
    with importing_for(assumed_gpu(target)):
        if not is_host_function(load_named(request.kernel)):
            raise InputError(f"{request.kernel} is a kernel: name the function that launches it")

    def loaded(shape: Mapping[str, Any], place: str) -> LoadedKernel:
        numbers = {name: size for name, size in shape.items() if name not in texts}
        sized = {name: shape.get(name, filled_in(text, numbers)) for name, text in texts.items()}
        values = tuple(f"{name}={text}" for name, text in sized.items())
        return KernelArguments(request.kernel, values=values, only=request.only).one(target, place)

    first = loaded(sizes, "meta")
    return KernelModule(
        name=first.problem.name,
        kernel=first.problem.kernel,
        space=lambda: first.space,
        problem=lambda shape, _, place: loaded(shape, place).problem,
        shapes=(sizes,),
        dtypes=(next(iter(first.problem.dtypes.values()), "fp32"),),
    )


@dataclass(frozen=True)
class Trial:
    """Launch of a kernel on inputs of its own.

    Attributes:
        shape: the sizes.
        dtype: one of the module's.
        config: the config's values and options.
        guard: name of the value around the arguments, of `GUARDS`.
        shifted: puts each argument one element behind an aligned address.
        backwards: runs the programs in the reverse order, under the interpreter.
    """

    shape: Mapping[str, Any]
    dtype: str
    config: Mapping[str, Any]
    guard: str = "nan"
    shifted: bool = False
    backwards: bool = False


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
        """Return whether the result is wrong or missing."""
        return not self.refused and not self.excess <= 1


class DiagnosisSubject:
    """The launches of a kernel module, or of a host function.

    Raises:
        InputError: the module or function is unknown, or its shape, dtype or arguments.
    """

    def __init__(self, request: DiagnosisRequest) -> None:
        self._module = request.module()
        self.dtype = self._module.check_dtype(request.dtype)
        self.dtypes = self._module.dtypes
        self.shape = dict(self._module.check_shape(request.shape or self._module.shapes[0]))
        self.outputs = tuple(getattr(self._module.python, "OUTPUTS", ()))
        self.name = self._module.name
        self.space: Space = self._module.space()

    def problem(self, shape: Mapping[str, Any], dtype: str) -> Problem:
        """Make the launch on meta tensors."""
        return required(self.name, lambda: self._module.problem(shape, dtype, "meta"))


class LaunchSizes:
    """Chooses the sizes of small launches by the blocks of a config.

    Attributes:
        names: of the sizes that may be changed; smaller ones than `LEAST_SIZE` stay.
    """

    def __init__(self, subject: DiagnosisSubject, config: Config, most_programs: int) -> None:
        self._subject, self._config, self._most = subject, config, most_programs
        own = subject.shape.items()
        self.names = tuple(n for n, v in own if type(v) is int and v >= LEAST_SIZE)

    @property
    def _blocks(self) -> list[int]:
        values = [*self._config.kwargs.values()]
        if not values:  # a host function may give them itself
            launch = self._subject.problem(self._subject.shape, self._subject.dtype)
            values = [launch.arguments.get(name) for name in constexprs(launch.kernel)]
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

    def elements(self, shape: Mapping[str, Any]) -> int:
        """Count the elements of all tensors."""
        problem = self._subject.problem(shape, self._subject.dtype)
        values = tensor_parts(problem.arguments).values()
        return sum(value.numel() for value in values if isinstance(value, torch.Tensor))

    def _programs(self, shape: Mapping[str, Any]) -> int:
        return math.prod(self._subject.problem(shape, self._subject.dtype).programs(self._config))


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


_SIZE: Final = re.compile(r"[\w.]+(?=[^\[\]]*\])")  # a word in the innermost brackets


def filled_in(text: str, values: Mapping[str, Any]) -> str:
    """Replace names in an argument that is a name, and in the sizes of its tensors."""
    sized = _SIZE.sub(lambda size: str(values.get(size[0], size[0])), text)
    return str(values.get(text, sized))


def named_sizes(values: Sequence[str], least: int) -> tuple[dict[str, str], dict[str, int]]:
    """Return a host function's arguments with names for the sizes of their tensors, and the sizes.

    A size that is written as a number is named by its first place, as `x.0` of `x=fp16[4096,64]`:
    equal numbers stay equal.

    Raises:
        InputError: there is no size of `least` or more.
    """
    texts, names, sizes = unique("--arg", map(named_text, values)), dict[str, str](), {}
    for name, text in texts.items():
        for place, size in enumerate(_SIZE.findall(text)):
            number = texts.get(size, size)
            if number.isdecimal() and int(number) >= least:
                named = size if size in texts else names.setdefault(size, f"{name}.{place}")
                sizes[named] = int(number)
    if not sizes:
        raise InputError(f"no --arg gives a size of {least} or more, as in x=fp16[64,64]")
    return {name: filled_in(text, names) for name, text in texts.items()}, sizes
