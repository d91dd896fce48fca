"""What the commands share: reading a kernel, its shape, dtype and axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from asmtune.dtypes import TORCH_NAMES, canonical_dtype, torch_dtype
from asmtune.errors import InputError, ProblemError
from asmtune.guard import required
from asmtune.kernel_module import configs_of, load_function, load_kernel_module
from asmtune.problem import Problem, jit_function
from asmtune.space import Space

T = TypeVar("T")


@dataclass(frozen=True)
class KernelArguments:
    """A kernel as the command line names it.

    Attributes:
        kernel: a shipped kernel's name, a file, or `file.py:function`.
        shape: "M=4096,N=4096,K=4096", or None for the module's first.
        dtype: of the module's, or None for its first.
        axes: "NAME=v1,v2" each; they replace the space's own.
        values: "name=value" each, arguments of a plain function.
    """

    kernel: str
    shape: str | None = None
    dtype: str | None = None
    axes: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def load(self) -> tuple[Problem, Space]:
        """The problem, on meta tensors, and its space.

        Raises:
            InputError: anything that does not fit; one line each.
        """
        axes = _unique("--axis", map(_axis, self.axes))
        if ":" in self.kernel:
            return self._function(axes)
        if self.values:
            raise InputError("--arg is for a plain function, named as file.py:function")
        module = load_kernel_module(self.kernel)
        shape = module.shapes[0] if self.shape is None else parse_assignments(self.shape, "--shape")
        dtype = module.check_dtype(self.dtype)
        checked = module.check_shape(shape)
        problem = required(
            f"kernel {module.name} on {_words(checked)}",
            lambda: module.problem(checked, dtype, "meta"),
        )
        space = required(f"space of kernel {module.name}", module.space)
        return problem, space.replace(**axes) if axes else space

    def _function(self, axes: Mapping[str, list[Any]]) -> tuple[Problem, Space]:
        if self.shape is not None or self.dtype is not None:
            raise InputError("--shape and --dtype are for kernel modules; give a function --arg")
        kernel = load_function(self.kernel)
        values = _unique("--arg", (_argument(kernel, text) for text in self.values))
        configs = configs_of(kernel)
        if configs is not None and not axes:
            space = Space.from_configs(configs)
        else:
            space = Space({"num_warps": (1, 2, 4, 8), **axes})
        numbers = {n: v for n, v in values.items() if isinstance(v, int | float | bool)}
        return Problem(kernel, values, (1,), numbers), space


def parse_assignments(text: str, option: str) -> dict[str, Any]:
    """Reads "M=4096,causal=true" as a mapping.

    Raises:
        InputError: a part is not NAME=VALUE; shows it.
    """
    return _unique(option, (_assignment(part, option) for part in text.split(",")))


def _unique(option: str, pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    values: dict[str, T] = {}
    for name, value in pairs:
        if name in values:
            raise InputError(f"{option}: {name} is given twice")
        values[name] = value
    return values


def _words(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _assignment(part: str, option: str) -> tuple[str, Any]:
    name, equals, value = part.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise InputError(f"{option}: {part!r} is not NAME=VALUE")
    return name.strip(), parse_value(value.strip())


def parse_value(text: str) -> Any:
    """A number, true, false, none, or the text itself."""
    words: dict[str, Any] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _axis(text: str) -> tuple[str, list[Any]]:
    name, equals, values = text.partition("=")
    parts = [value.strip() for value in values.split(",")]
    if not equals or not name.strip() or not all(parts):
        raise InputError(f"--axis: {text!r} is not NAME=VALUE,VALUE,...")
    return name.strip(), [parse_value(part) for part in parts]


def _argument(kernel: Any, text: str) -> tuple[str, Any]:
    """A value for a parameter: a number, or a dtype for a pointer to it."""
    name, equals, value = (part.strip() for part in text.partition("="))
    parameters = {p.name: p for p in jit_function(kernel).params}
    if not equals or not value:
        raise InputError(f"--arg: {text!r} is not NAME=VALUE")
    if name not in parameters:
        raise ProblemError(
            f"kernel {jit_function(kernel).__name__} has no parameter {name!r}: "
            f"its parameters are {', '.join(parameters)}"
        )
    parsed = parse_value(value)
    if not isinstance(parsed, str):
        return name, parsed
    if parameters[name].is_constexpr:
        return name, _constexpr(parsed)
    return name, _pointer(parsed.removeprefix("*"))


def _pointer(dtype: str) -> Any:
    import torch

    return torch.empty(1, dtype=torch_dtype(dtype), device="meta")


def _constexpr(text: str) -> Any:
    """A dtype where the text names one, as `ACC=fp32` does; else the text."""
    import triton.language as tl

    if text in TORCH_NAMES or text.removeprefix("tl.") in TORCH_NAMES.values():
        return getattr(tl, tl.dtype(canonical_dtype(text)).__repr__().split(".")[-1], text)
    return text
