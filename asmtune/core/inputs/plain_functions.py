"""Problems of plain Triton functions, from arguments and a grid on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from asmtune.base.errors import InputError, ProblemError
from asmtune.core.config import OPTION_AXES
from asmtune.core.dtypes import TORCH_NAMES, canonical_dtype, dtype_of, torch_dtype
from asmtune.core.failures import required
from asmtune.core.inputs.shapes import parse_value, unique
from asmtune.core.inputs.size_expressions import Sizes
from asmtune.core.kernel_module import configs_of, load_function
from asmtune.core.problem import GRID_LIMITS, Problem, jit_function
from asmtune.core.space.space import Space

_TENSOR_LIMITS: Final = (2**48,) * 8
_POINTER: Final = re.compile(r"\*?\s*(?P<dtype>[\w.]+)\s*(\[(?P<sizes>.*)\])?")


def plain_function(
    reference: str, arguments: Sequence[str], grid: str | None, axes: Mapping[str, list[Any]]
) -> tuple[Problem, Space]:
    """Builds a function's problem, on tensors without memory, and its space.

    Args:
        reference: `file.py:function`.
        arguments: "name=value" each.
        grid: "cdiv(n, BLOCK)"; None for one program.
        axes: replace the configs of `@triton.autotune`.

    Raises:
        InputError: an argument, the grid or the reference is wrong; says which.
    """
    kernel = load_function(reference)
    values = unique("--arg", (_argument(kernel, text) for text in arguments))
    configs = configs_of(kernel)
    if configs is not None and not axes:
        space = Space.from_configs(configs)
    else:
        space = Space({"num_warps": (1, 2, 4, 8), **axes})
    numbers = {n: v for n, v in values.items() if isinstance(v, int | float | bool)}
    values |= {n: v.sized(n, numbers) for n, v in values.items() if isinstance(v, Pointer)}
    problem = Problem(kernel, values, (1,), numbers)
    if grid is None:
        return problem, space
    return replace(problem, grid=_grid(grid, problem, space)), space


def assumptions_of(problem: Problem) -> tuple[str, ...]:
    """Lists the assumptions of a report on a plain function, a sentence each."""
    notes = []
    if not callable(problem.grid):
        notes.append('the grid is taken as one program; give it as --grid "cdiv(n, BLOCK)"')
    unsized = [n for n, v in problem.arguments.items() if isinstance(v, Pointer)]
    if unsized:
        dtype = dtype_of(problem.arguments[unsized[0]])
        notes.append(
            f"the size of {', '.join(unsized)} is unknown, so that bytes read twice count "
            f'twice; give it as --arg "{unsized[0]}={dtype}[n]"'
        )
    return tuple(notes)


def _argument(kernel: Any, text: str) -> tuple[str, Any]:
    """Reads a parameter's value: a number, or for a pointer a dtype with or without sizes."""
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
    parts = _POINTER.fullmatch(parsed)
    if parts is None:
        raise InputError(f"--arg: {text!r}: a pointer is written as {name}=fp16[M,K]")
    return name, Pointer(torch_dtype(parts["dtype"]), parts["sizes"])


@dataclass(frozen=True)
class Pointer:
    """A pointer as Triton specialises it; the memory's size is unknown.

    Attributes:
        dtype: PyTorch's dtype.
        sizes: as the user wrote them, or None.
    """

    dtype: Any
    sizes: str | None

    def data_ptr(self) -> int:
        """Returns an address divisible by 16, as PyTorch's are."""
        return 0

    def sized(self, name: str, numbers: Mapping[str, Any]) -> Any:
        """Returns a tensor without memory if the user gave sizes, else itself."""
        if self.sizes is None:
            return self
        import torch

        sizes = Sizes(f"--arg {name}", self.sizes, _TENSOR_LIMITS)
        sizes.check_names(numbers)
        shape = sizes(numbers)
        return required(
            f"--arg {name}={list(shape)}",
            lambda: torch.empty(shape, dtype=self.dtype, device="meta"),
        )


def _grid(text: str, problem: Problem, space: Space) -> Callable[[Mapping[str, Any]], Any]:
    """Builds a grid function from an expression over the numbers of a launch."""
    sizes = Sizes("--grid", text, GRID_LIMITS)
    parameters = jit_function(problem.kernel).params
    others = problem.arguments.keys() - problem.shape.keys()
    names = [p.name for p in parameters if p.name not in others]
    sizes.check_names([*names, *space.axes, *OPTION_AXES])
    defaults = {p.name: p.default for p in parameters if p.has_default}
    return lambda values: sizes({**defaults, **values})


def _constexpr(text: str) -> Any:
    """Returns the dtype that a text names, as in `ACC=fp32`, else the text."""
    import triton.language as tl

    if text in TORCH_NAMES or text.removeprefix("tl.") in TORCH_NAMES.values():
        return getattr(tl, tl.dtype(canonical_dtype(text)).__repr__().split(".")[-1], text)
    return text
