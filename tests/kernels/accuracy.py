"""The accuracy check of a kernel: every way of calling it, against float64.

The same code runs under Triton's interpreter, on a GPU, and before any timing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import torch

from asmtune.core.config import Config
from asmtune.core.kernel_module import kernel_names
from asmtune.kernels._common import FLOATS
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import asm_autotune
from asmtune.triton_api.interpreter import exact_floats
from asmtune.workshop.kernel_checks.checks import KINDS, check_kernel
from asmtune.workshop.kernel_checks.reports import as_tuple, compared

Shape = Mapping[str, Any]
Inputs = dict[str, Any]

KERNELS = kernel_names()


@dataclass(frozen=True, kw_only=True)
class Case:
    """The cases that one kernel is checked on.

    Attributes:
        shapes: small and odd ones; the first is used for values, layouts and gradients.
        configs: to launch with, besides the module's default.
        varied: inputs that come with special values and in other layouts.
        gradients: inputs whose gradients are compared.
        keywords: further arguments of the public function, each on the first shape.
        most: special values are no larger than this; squares of larger ones leave fp32.
        also: other kernels that the public function launches.
        on_gpu: rows of the table of tolerances by the result's dtype, where a GPU rounds more.
        on_gpu_of: the same by the inputs' dtype, then the result's.
        completed: inputs that follow from others, made anew when those are varied.
        rounded: the same for every device: dtypes in which the kernel keeps what it needs again.
        extras: functions that make more comparisons on a device, by name; each is right up to 1.
        is_parted: whether pytest's workers share the checks by the default config: where compiles
            take seconds.
    """

    shapes: Sequence[Shape]
    configs: Sequence[Config]
    varied: Sequence[str]
    gradients: Sequence[str] = ()
    keywords: Sequence[Mapping[str, Any]] = ()
    most: float = float("inf")
    also: Sequence[str] = ()
    on_gpu: Mapping[str, str] = field(default_factory=dict)
    on_gpu_of: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rounded: Mapping[str, str] = field(default_factory=dict)
    completed: Callable[[Inputs], Inputs] = dict
    extras: Sequence[Callable[[str], dict[str, float]]] = ()
    is_parted: bool = False

    def rows(self, device: str, dtype: str) -> Mapping[str, str]:
        """Rows of the table of tolerances, by dtypes whose results have another than their own."""
        if device != "cuda":
            return self.rounded
        return {**self.on_gpu, **self.on_gpu_of.get(dtype, {}), **self.rounded}


def module_of(name: str) -> Any:
    """A kernel's module."""
    return importlib.import_module(f"asmtune.kernels.{name}")


def case_of(name: str) -> Case:
    """Give the cases that a kernel is checked on."""
    case = importlib.import_module(f"tests.kernels.cases.{name}").CASE
    assert isinstance(case, Case)
    return case


def tuners_of(module: Any) -> list[str]:
    """List the names of the tuners of a module's main kernel, one for each set of alternatives."""
    tuners = {name: t for name, t in vars(module).items() if isinstance(t, AsmAutotuner)}
    return [name for name, tuner in tuners.items() if tuner.fn is module.kernel]


@contextmanager
def launched_with(config: Config, *names: str) -> Iterator[None]:
    """Public functions of kernels launch with a config, or their defaults, and tune nothing."""
    with ExitStack() as undo:
        for place, name in enumerate(names):
            module = module_of(name)
            chosen = config if place == 0 else module.DEFAULT
            fixed = asm_autotune(configs=[chosen])(module.kernel)
            for tuner in tuners_of(module):
                undo.callback(setattr, module, tuner, getattr(module, tuner))
                setattr(module, tuner, fixed)
        yield


@dataclass(frozen=True)
class Check:
    """A check of one shape by a config: its kinds, further arguments, whether all is checked."""

    shape: Shape
    config: Config
    kinds: Collection[str]
    thorough: bool
    more: Mapping[str, Any] = field(default_factory=dict)


def differences(name: str, dtype: str, device: str, part: int | None = None) -> dict[str, float]:
    """Return the excess of every comparison of a kernel, or of a part, by what was compared."""
    found: dict[str, float] = {}
    every = parts(name, device != "cpu" or dtype == module_of(name).DTYPES[0])
    for check in chain(*every) if part is None else every[part]:
        torch.manual_seed(0)
        found |= _checked(name, dtype, device, check)
    return found


def parts(name: str, thorough: bool = True) -> list[list[Check]]:
    """Divide a kernel's checks into parts for pytest's workers, each of configs of its own.

    The checks by the default config of a kernel that compiles for long are in several parts. A part
    has no more kinds of checks than there are, each some one or two compiles.
    """
    case, own, others = case_of(name), *_by_config(name, thorough)
    chunks: list[list[Check]] = [[]]
    for check in own:
        count = sum(len(one.kinds) for one in chunks[-1])
        if case.is_parted and chunks[-1] and count + len(check.kinds) > len(KINDS):
            chunks.append([])
        chunks[-1].append(check)
    return chunks + others


def _by_config(name: str, thorough: bool) -> tuple[list[Check], list[list[Check]]]:
    """List the checks by a kernel's default config, and those by each other one.

    The first shape has all kinds of checks by the default, and its values by one more; others have
    gradients. Without thoroughness configs take turns: the interpreter takes seconds.
    """
    case, configs = case_of(name), (module_of(name).DEFAULT, *case_of(name).configs)
    by: list[list[Check]] = [[] for _ in configs]
    for place, shape in enumerate(case.shapes):
        for turn, config in enumerate(configs):
            kinds = {"shapes"} if thorough or turn == place % len(configs) else set()
            if turn == 0 and case.gradients and (thorough or place < 2):
                kinds.add("gradients")
            if turn == 0 and place == len(case.shapes) - 1:
                kinds.add("repeats")
            if place == 0 and turn < 1 + thorough:
                kinds |= {"values"} if turn else set(KINDS)
            if kinds:
                by[turn].append(Check(shape, config, kinds, thorough))
    by[0] += [Check(case.shapes[0], configs[0], {"shapes"}, thorough, m) for m in case.keywords]
    return by[0], [checks for checks in by[1:] if checks]


def _checked(name: str, dtype: str, device: str, check: Check) -> dict[str, float]:
    """Make a check; with the default config two shapes are checked as a problem as well."""
    module, case = module_of(name), case_of(name)

    def launched(config: Config, **inputs: Any) -> Any:
        with launched_with(config, name):
            return getattr(module, name)(**case.completed(inputs))

    text = _text(check.shape) + (f" with {_text(check.more)}" if check.more else "")
    # Backward passes launch after the function has returned.
    with launched_with(module.DEFAULT, name, *case.also):
        report = check_kernel(
            {str(check.config): partial(launched, check.config)},
            _exact(module, case),
            {text: lambda: {**module.inputs(check.shape, dtype, device), **check.more}},
            varied=case.varied,
            gradients=case.gradients,
            most=case.most,
            tolerances=case.rows(device, dtype),
            deterministic=True,
            thorough=check.thorough,
            checks={*check.kinds} - ({"values"} if dtype not in FLOATS else set()),
        )
    found = {one.name: one.excess for one in report.comparisons}
    if check.config == module.DEFAULT and not check.more and check.shape in case.shapes[:2]:
        found |= _problem(name, dtype, device, check.shape)
    return found


def extras(name: str, device: str, part: int | None = None) -> dict[str, float]:
    """Return the excess of what a kernel's case compares besides, by all functions or by one."""
    found: dict[str, float] = {}
    for place, compare in enumerate(case_of(name).extras):
        if part in (None, place):
            torch.manual_seed(place + 1)
            found |= compare(device)
    return found


def interpreted(name: str, dtype: str) -> dict[str, float]:
    """Return every comparison under the interpreter; "extra" stands for the further ones."""
    with exact_floats():
        found = extras(name, "cpu") if dtype == "extra" else differences(name, dtype, "cpu")
    # JSON has no infinity.
    return {what: min(error, 1e300) for what, error in found.items()}


def _exact(module: Any, case: Case) -> Callable[..., Any]:
    """Return the baseline, which keeps the inputs' gradients, in float64."""
    return lambda **inputs: module.baseline(**doubled(case.completed(inputs)))


def _problem(name: str, dtype: str, device: str, shape: Shape) -> dict[str, float]:
    """Compare all outputs of a problem's launch with its reference; without the contract too."""
    module, rows, found = module_of(name), case_of(name).rows(device, dtype), {}
    problem = module.problem(shape, dtype, device)
    for contract in [{}] + [{"MULTIPLE": 1}] * ("MULTIPLE" in problem.arguments):
        arguments = {**problem.arguments, **contract}
        problem.kernel[problem.grid](**arguments, **module.DEFAULT.all_kwargs())
        wanted = as_tuple(module.reference(arguments))
        got = tuple(arguments[output] for output in module.OUTPUTS)
        what = f"problem {_text(shape)} {contract}"
        found[what] = compared("shapes", what, got, wanted, rows).excess
    return found


def _text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def doubled(inputs: Inputs) -> Inputs:
    """Return tensors in float64, with their gradients; class numbers, of 64 bits, stay."""
    return {
        name: value.double()
        if isinstance(value, torch.Tensor) and value.dtype != torch.int64
        else value
        for name, value in inputs.items()
    }
