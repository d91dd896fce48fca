"""The accuracy check of a kernel: every way of calling it, against float64.

The same code runs under Triton's interpreter, on a GPU, and before any timing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from asmtune.core.config import Config
from asmtune.core.dtypes import torch_dtype
from asmtune.core.kernel_module import kernel_names
from asmtune.runtime.decorator import asm_autotune
from tests.kernels.tolerances import excess

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
        rounded: the same for every device: dtypes in which the kernel keeps what it needs again.
        not_interpreted: dtypes that Triton's interpreter gets wrong, each with the reason.
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
    not_interpreted: Mapping[str, str] = field(default_factory=dict)
    extra: Callable[[str], dict[str, float]] | None = None

    def rows(self, device: str, dtype: str) -> Mapping[str, str]:
        """Rows of the table of tolerances, by dtypes whose results have another than their own."""
        if device != "cuda":
            return {"bf16": "bf16 cut", **self.rounded}
        return {**self.on_gpu, **self.on_gpu_of.get(dtype, {}), **self.rounded}


def module_of(name: str) -> Any:
    """A kernel's module."""
    return importlib.import_module(f"asmtune.kernels.{name}")


def case_of(name: str) -> Case:
    """Give the cases that a kernel is checked on."""
    case = importlib.import_module(f"tests.kernels.cases.{name}").CASE
    assert isinstance(case, Case)
    return case


@contextmanager
def launched_with(config: Config, *names: str) -> Iterator[None]:
    """Public functions of kernels launch with a config, or their defaults, and tune nothing."""
    with ExitStack() as undo:
        for place, name in enumerate(names):
            module = module_of(name)
            chosen = config if place == 0 else module.DEFAULT
            fixed = asm_autotune(configs=[chosen])(module.kernel)
            for tuner in ("_tuned", "_alone", "_beside_gluon", "_beside_vendor"):
                if hasattr(module, tuner):
                    undo.callback(setattr, module, tuner, getattr(module, tuner))
                    setattr(module, tuner, fixed)
        yield


def differences(name: str, dtype: str, device: str) -> dict[str, float]:
    """The excess of every comparison of a kernel, by what was compared."""
    torch.manual_seed(0)
    check = _Check(name, dtype, device)
    found = check.shapes() | check.problems() | check.keywords() | check.layouts()
    if dtype in ("fp32", "fp16", "bf16"):
        found |= check.values()
    found |= check.gradients()
    return found


class _Check:
    """The comparisons of one kernel with one dtype on one device."""

    def __init__(self, name: str, dtype: str, device: str) -> None:
        self._name, self._dtype, self._device = name, dtype, device
        self._module, self._case = module_of(name), case_of(name)
        self._public = getattr(self._module, name)
        self._rows = self._case.rows(device, dtype)
        self._configs = (self._module.DEFAULT, *self._case.configs)
        # The interpreter takes seconds: what no dtype changes is checked with the first.
        first = next((d for d in self._module.DTYPES if d not in self._case.not_interpreted), None)
        self._is_whole = device != "cpu" or dtype == first

    def shapes(self) -> dict[str, float]:
        """All shapes with all configs, or with one in turn, through the public function."""
        turns = len(self._configs)
        return {
            f"{_text(shape)} by {config}": self._call(self._inputs(shape), config)
            for place, shape in enumerate(self._case.shapes)
            for turn, config in enumerate(self._configs)
            if self._is_whole or turn == place % turns
        }

    def problems(self) -> dict[str, float]:
        """All outputs of a problem's launch, against its reference; without the contract too."""
        found = {}
        for shape in self._case.shapes[:2]:
            problem = self._module.problem(shape, self._dtype, self._device)
            contracts: list[dict[str, int]] = [{}]
            contracts += [{"MULTIPLE": 1}] * ("MULTIPLE" in problem.arguments)
            for contract in contracts:
                arguments = {**problem.arguments, **contract}
                config = self._module.DEFAULT.all_kwargs()
                problem.kernel[problem.grid](**arguments, **config)
                wanted = as_tuple(self._module.reference(arguments))
                got = tuple(arguments[output] for output in self._module.OUTPUTS)
                found[f"problem {_text(shape)} {contract}"] = self._worst(got, wanted)
        return found

    def keywords(self) -> dict[str, float]:
        """Further arguments of the public function."""
        shape = self._case.shapes[0]
        return {
            f"with {_text(more)}": self._call({**self._inputs(shape), **more})
            for more in self._case.keywords
        }

    def layouts(self) -> dict[str, float]:
        """Inputs that are not contiguous, or lie where vectors cannot be loaded."""
        found = {}
        for name in self._case.varied:
            for layout, laid in LAYOUTS.items():
                if layout not in FLAT and not self._is_whole:
                    continue  # of another dtype the addresses alone differ
                inputs = self._inputs(self._case.shapes[0])
                if inputs[name].ndim > 1 or layout in FLAT:
                    inputs[name] = laid(inputs[name])
                    found[f"{name} {layout}"] = self._call(inputs)
        return found

    def values(self) -> dict[str, float]:
        """Zeros, huge, tiny, offset, NaN and infinite values in each input."""
        limits = torch.finfo(torch_dtype(self._dtype))
        huge = min(limits.max / 8, self._case.most)
        fills: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "zeros": torch.zeros_like,
            "huge": lambda x: x * huge / 4,
            "tiny": lambda x: torch.copysign(1 + x.abs(), x) * limits.tiny * 4,
            "offset": lambda x: x + 100,
            "nan": lambda x: _sprinkled(x, float("nan")),
            "inf": lambda x: _sprinkled(x, float("inf")),
            "minus inf": lambda x: _sprinkled(x, float("-inf")),
        }
        found = {}
        for name in self._case.varied:
            for what, fill in fills.items():
                twice = self._is_whole and (self._device != "cpu" or what in BY_TWO)
                for config in self._configs[: 1 + twice]:
                    inputs = self._inputs(self._case.shapes[0])
                    inputs[name] = fill(inputs[name].double()).to(inputs[name].dtype)
                    found[f"{name} {what} by {config}"] = self._call(inputs, config)
        return found

    def gradients(self) -> dict[str, float]:
        """Compare gradients by autograd with those of the baseline."""
        found = {}
        if self._case.gradients:
            for shape in self._case.shapes[: None if self._is_whole else 2]:
                inputs = self._inputs(shape)
                exact = doubled(inputs)
                got = self._differentiated(self._public, inputs, None)
                want = self._differentiated(self._module.baseline, exact, got[0])
                found[f"gradients at {_text(shape)}"] = self._worst(got[1:], want[1:])
        return found

    def _differentiated(
        self, function: Callable[..., Any], inputs: Inputs, like: torch.Tensor | None
    ) -> tuple[torch.Tensor, ...]:
        """The gradient that went in, and those that came out."""
        for name in self._case.gradients:
            inputs[name].requires_grad_()
        with launched_with(self._module.DEFAULT, self._name, *self._case.also):
            result = function(**inputs)
            grad = torch.randn_like(result) if like is None else like.to(result.dtype)
            result.backward(grad)
        return grad, *(inputs[name].grad for name in self._case.gradients)

    def _inputs(self, shape: Shape) -> Inputs:
        made: Inputs = self._module.inputs(shape, self._dtype, self._device)
        return made

    def _call(self, inputs: Inputs, config: Config | None = None) -> float:
        with torch.no_grad(), launched_with(config or self._module.DEFAULT, self._name):
            got = as_tuple(self._public(**inputs))
        return self._worst(got, as_tuple(self._module.baseline(**doubled(inputs))))

    def _worst(self, got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> float:
        pairs = zip(got, want, strict=True)
        return max(excess(mine, exact, self._rows) for mine, exact in pairs)


def as_tuple(result: Any) -> tuple[torch.Tensor, ...]:
    """A kernel's results, also where it is one."""
    return (result,) if isinstance(result, torch.Tensor) else tuple(result)


def _text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def doubled(inputs: Inputs) -> Inputs:
    """The same in float64; class numbers stay what they are."""
    return {
        name: value.detach().double()
        if isinstance(value, torch.Tensor) and value.dtype != torch.int64
        else value
        for name, value in inputs.items()
    }


def _sprinkled(x: torch.Tensor, value: float) -> torch.Tensor:
    """Put one value at the first element and at every 37th after the second."""
    x = x.contiguous()
    x.view(-1)[:1] = value
    x.view(-1)[2::37] = value
    return x


def _spaced(x: torch.Tensor) -> torch.Tensor:
    wide = torch.empty((*x.shape[:-1], 2 * x.shape[-1]), dtype=x.dtype, device=x.device)
    return wide[..., ::2].copy_(x)


def _inner(x: torch.Tensor) -> torch.Tensor:
    wide = torch.empty((*x.shape[:-1], x.shape[-1] + 3), dtype=x.dtype, device=x.device)
    return wide[..., 1:-2].copy_(x)


def _repeated(x: torch.Tensor) -> torch.Tensor:
    return x[:1].expand(x.shape)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "every other element": _spaced,
    "inner block": _inner,
    "transposed": lambda x: x.mT.contiguous().mT,
    "every other row": lambda x: x.repeat_interleave(2, 0)[::2],
    "one row repeated": _repeated,
}

BY_TWO = ("huge", "nan", "minus inf")
"""Values that are checked with a second config under the interpreter too: they show masks."""

FLAT = ("every other element", "inner block")
"""Layouts that a vector can have."""
