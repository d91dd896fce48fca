"""The accuracy check of a kernel: every way of calling it, against float64.

The same code runs under Triton's interpreter, on a GPU, and before any timing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from asmtune.core.config import Config
from asmtune.core.kernel_module import kernel_names
from asmtune.runtime.autotuner import AsmAutotuner
from asmtune.runtime.decorator import asm_autotune
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
        extra: more comparisons on a device, by name; each is right up to 1.
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
    extra: Callable[[str], dict[str, float]] | None = None

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


def differences(name: str, dtype: str, device: str) -> dict[str, float]:
    """Return the excess of every comparison of a kernel, by what was compared."""
    torch.manual_seed(0)
    module, case = module_of(name), case_of(name)
    # The interpreter takes seconds: what no dtype changes is checked with the first.
    first = module.DTYPES[0]

    def cases(shapes: Sequence[Shape], more: Inputs) -> dict[str, Callable[[], Inputs]]:
        tail = f" with {_text(more)}" if more else ""
        return {
            _text(shape) + tail: lambda shape=shape: {**module.inputs(shape, dtype, device), **more}
            for shape in shapes
        }

    def launched(config: Config, **inputs: Any) -> Any:
        with launched_with(config, name):
            return getattr(module, name)(**case.completed(inputs))

    options: dict[str, Any] = {
        "varied": case.varied,
        "gradients": case.gradients,
        "most": case.most,
        "tolerances": case.rows(device, dtype),
        "deterministic": True,
        "thorough": device != "cpu" or dtype == first,
    }
    if dtype not in ("fp32", "fp16", "bf16"):
        options["checks"] = set(KINDS) - {"values"}
    functions = {str(one): partial(launched, one) for one in (module.DEFAULT, *case.configs)}
    exact = _exact(module, case)
    # Backward passes launch after the function has returned.
    with launched_with(module.DEFAULT, name, *case.also):
        reports = [check_kernel(functions, exact, cases(case.shapes, {}), **options)]
        for more in case.keywords:
            alone = {**options, "checks": ("shapes",)}
            function = functions[str(module.DEFAULT)]
            given = cases(case.shapes[:1], more)
            reports.append(check_kernel(function, exact, given, **alone))
    found = {one.name: one.excess for report in reports for one in report.comparisons}
    return found | _problems(module, case, dtype, device)


def _exact(module: Any, case: Case) -> Callable[..., Any]:
    """Return the baseline, which keeps the inputs' gradients, in float64."""
    return lambda **inputs: module.baseline(**doubled(case.completed(inputs)))


def _problems(module: Any, case: Case, dtype: str, device: str) -> dict[str, float]:
    """Compare all outputs of a problem's launch with its reference; without the contract too."""
    found = {}
    for shape in case.shapes[:2]:
        problem = module.problem(shape, dtype, device)
        for contract in [{}] + [{"MULTIPLE": 1}] * ("MULTIPLE" in problem.arguments):
            arguments = {**problem.arguments, **contract}
            problem.kernel[problem.grid](**arguments, **module.DEFAULT.all_kwargs())
            wanted = as_tuple(module.reference(arguments))
            got = tuple(arguments[output] for output in module.OUTPUTS)
            name = f"problem {_text(shape)} {contract}"
            found[name] = compared("shapes", name, got, wanted, case.rows(device, dtype)).excess
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
