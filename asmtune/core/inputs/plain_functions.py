"""Problems of plain Triton functions, from arguments and a grid on the command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from asmtune.base.errors import USER_CODE_ERRORS, InputError, ProblemError
from asmtune.base.text import did_you_mean, shortened
from asmtune.core.config import OPTION_AXES
from asmtune.core.dtypes import TORCH_NAMES, canonical_dtype, torch_dtype
from asmtune.core.failures import required
from asmtune.core.inputs.shapes import named_text, parse_value, unique
from asmtune.core.kernel_module import load_function, space_of
from asmtune.core.problem import GRID_LIMITS, Problem
from asmtune.core.space.space import Space
from asmtune.triton_api.jit_functions import constexprs, defaults, jit_function, parameters

TENSOR_LIMITS: Final = (2**48,) * 8
POINTER: Final = re.compile(r"\*?\s*(?P<dtype>[\w.]+)\s*(\[(?P<sizes>.*)\])?")


def plain_function(
    reference: str, arguments: Sequence[str], grid: str | None, axes: Mapping[str, list[Any]]
) -> tuple[Problem, Space]:
    """Build a function's problem, on tensors without memory, and its space.

    Args:
        reference: `file.py:function`.
        arguments: "name=value" each.
        grid: "cdiv(n, BLOCK)"; None raises.
        axes: replace those of its decorator's space, or are the space.

    Raises:
        InputError: an argument, the grid or the reference is wrong; says which.
    """
    kernel = load_function(reference)
    axes = {name: [constexpr_value(one) for one in many] for name, many in axes.items()}
    values = unique("--arg", (_argument(kernel, text) for text in arguments))
    own = space_of(kernel)
    if own is not None:
        space = own.replace(**axes) if axes else own
    else:
        space = Space({"num_warps": usual_warps(), **axes})
    numbers = {n: v for n, v in values.items() if isinstance(v, int | float | bool)}
    _check_sizes(kernel, values, grid)
    fixed = {name: one[0] for name, one in axes.items() if len(one) == 1 and type(one[0]) is int}
    sizes = {**numbers, **fixed}
    values |= {n: v.sized(n, sizes) for n, v in values.items() if isinstance(v, Pointer)}
    bound = {n: v for n, v in values.items() if n in jit_function(kernel).arg_names}
    problem = Problem(kernel, bound, (1,), numbers)
    if grid is None:
        name = jit_function(kernel).__name__
        raise ProblemError(
            f'kernel {name}: its grid is not known; give it as --grid "cdiv(n, BLOCK)", or name '
            "the Python function that launches it in its place"
        )
    return with_grid(problem, grid, space), space


def usual_warps(first: int = 4) -> tuple[int, ...]:
    """Return the warps to try where nothing lists configs: a launch's own, or Triton's, first."""
    return tuple(dict.fromkeys((first, 1, 2, 4, 8)))


def _check_sizes(kernel: Any, values: Mapping[str, Any], grid: str | None) -> None:
    """Refuse a number that is no parameter of the kernel, and that no size names.

    Raises:
        ProblemError: names it.
    """
    sizes = (v.sizes for v in values.values() if isinstance(v, Pointer))
    named = set(re.findall(r"\w+", " ".join([*sizes, grid or ""])))
    known = jit_function(kernel).arg_names
    for name in values:
        if name not in known and name not in named:
            raise ProblemError(
                f"kernel {jit_function(kernel).__name__} has no parameter {name!r}: its parameters "
                f"are {', '.join(known)}{did_you_mean(name, known)}; no size names it either"
            )


def _argument(kernel: Any, text: str) -> tuple[str, Any]:
    name, value = named_text(text)
    names, constants = [p.name for p in parameters(kernel)], constexprs(kernel)
    parsed = parse_value(value)
    if name not in names:
        if type(parsed) is int:  # a size that tensors' shapes or the grid may name
            return name, parsed
        raise ProblemError(
            f"kernel {jit_function(kernel).__name__} has no parameter {name!r}: "
            f"its parameters are {', '.join(names)}"
        )
    if isinstance(parsed, int) and abs(parsed) > LARGEST:
        raise InputError(f"--arg: {name} is {shortened(value)}, beyond 64 bits")
    if not isinstance(parsed, str):
        return name, parsed
    if name in constants:
        return name, constexpr_value(parsed)
    parts = POINTER.fullmatch(parsed)
    if parts is None or parts["sizes"] is None:
        raise InputError(f"--arg: {text!r}: a tensor is written as {name}=fp16[M,K]")
    return name, Pointer(torch_dtype(parts["dtype"]), parts["sizes"])


@dataclass(frozen=True)
class Pointer:
    """A tensor as the command line has it: PyTorch's dtype, and sizes as the user wrote them."""

    dtype: Any
    sizes: str

    def sized(self, name: str, numbers: Mapping[str, Any]) -> Any:
        """Return the tensor, without memory."""
        import torch

        sizes = Sizes(f"--arg {name}", self.sizes, TENSOR_LIMITS)
        sizes.check_names(numbers)
        shape = sizes(numbers)
        return required(
            f"--arg {name}={list(shape)}",
            lambda: torch.empty(shape, dtype=self.dtype, device="meta"),
        )


def with_grid(problem: Problem, text: str, space: Space) -> Problem:
    """Give a problem the grid of a text such as "cdiv(n, BLOCK), batch".

    Raises:
        InputError: it is malformed, or names no number of the launch.
    """
    sizes = Sizes("--grid", text, GRID_LIMITS)
    others = problem.arguments.keys() - problem.shape.keys()
    names = [p.name for p in parameters(problem.kernel) if p.name not in others]
    sizes.check_names([*names, *problem.shape, *space.axes, *OPTION_AXES])
    known = {**defaults(problem.kernel), **problem.shape}
    used = sizes.names

    def grid(values: Mapping[str, Any]) -> tuple[int, ...]:
        return sizes({**known, **{name: values[name] for name in used if name in values}})

    return replace(problem, grid=grid)


def constexpr_value(text: Any) -> Any:
    """Return the dtype that a text names, as in `ACC=fp32`, else what is given."""
    import triton.language as tl

    if not isinstance(text, str):
        return text
    if text in TORCH_NAMES or text.removeprefix("tl.") in TORCH_NAMES.values():
        return getattr(tl, tl.dtype(canonical_dtype(text)).__repr__().split(".")[-1], text)
    return text


LARGEST: Final = 1 << 63
"""The largest number that a size or an argument may be."""


def _next_power_of_2(number: int) -> int:
    if number < 1:
        raise ArithmeticError(f"next_power_of_2 of {number}")
    return 1 << (number - 1).bit_length()


_FUNCTIONS: Final[Mapping[str, Any]] = {
    "cdiv": lambda number, divisor: (number + divisor - 1) // divisor,
    "max": max,
    "min": min,
    "next_power_of_2": _next_power_of_2,
}


class Sizes:
    """Sizes of a grid or of a tensor as expressions of Python's, which the user has written.

    Args:
        option: the option that holds them, for messages ("--grid").
        text: expressions with commas between them ("cdiv(n, BLOCK), batch").
        limits: the largest value of each; as many expressions are allowed.

    Raises:
        InputError: it is not Python's syntax; says where.

    Attributes:
        names: names of the values that the sizes depend on.
    """

    def __init__(self, option: str, text: str, limits: Sequence[int]) -> None:
        self._option, self._text, self._limits = option, " ".join(text.split()), limits
        try:
            tree = ast.parse(self._text, mode="eval")
            self._code = compile(tree, option, "eval")
        except SyntaxError as error:
            raise self._error(f"{error.msg}, at position {error.offset or 1}") from error
        except (RecursionError, MemoryError, ValueError) as error:
            raise self._error("nested too deeply, or no text") from error
        count = len(tree.body.elts) if isinstance(tree.body, ast.Tuple) else 1
        if not 1 <= count <= len(limits):
            raise self._error(f"{count} sizes; expected 1 to {len(limits)}")
        used = dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        self.names = tuple(name for name in used if name not in _FUNCTIONS)

    def check_names(self, names_known: Iterable[str]) -> None:
        """Refuse a name that is not among the numbers of the launch.

        Raises:
            InputError: names it, and the nearest known one.
        """
        known = list(dict.fromkeys([*names_known, *_FUNCTIONS]))
        for name in self.names:
            if name not in known:
                listed = f"known: {', '.join(known)}{did_you_mean(name, known)}"
                raise self._error(f"nothing is called {name!r}; {listed}")

    def __call__(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        """Compute the sizes from a launch's values by name.

        Raises:
            InputError: one is not a whole number from 1 to its limit; says under which values.
        """
        used = {name: values.get(name) for name in self.names}
        odd = next((name for name, value in used.items() if not isinstance(value, int)), None)
        if odd is not None:
            raise self._error(f"{odd} is {used[odd]!r}, no whole number")
        named = " ".join(f"{name}={value}" for name, value in used.items())
        under = f" under {named}" if named else ""
        try:
            found = eval(self._code, {"__builtins__": {}, **_FUNCTIONS}, used)
        except USER_CODE_ERRORS as error:
            raise self._error(f"{error}{under}") from error
        sizes = found if isinstance(found, tuple) else (found,)
        for size, limit in zip(sizes, self._limits, strict=False):
            if not isinstance(size, int) or not 1 <= size <= limit:
                hint = "; write // or cdiv(a, b)" if isinstance(size, float) else ""
                whole = f"expected a whole number from 1 to {limit:,}"
                raise self._error(f"{shortened(repr(size))}{under}; {whole}{hint}")
        return tuple(map(int, sizes))

    def _error(self, what: str) -> InputError:
        return InputError(f"{self._option} {shortened(self._text, 200)!r}: {what}")
