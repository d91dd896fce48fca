"""Problems of plain Triton functions, from arguments and a grid on the command line."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from asmtune.base.errors import InputError, ProblemError
from asmtune.base.text import did_you_mean, shortened
from asmtune.core.config import OPTION_AXES
from asmtune.core.dtypes import TORCH_NAMES, canonical_dtype, dtype_of, torch_dtype
from asmtune.core.failures import required
from asmtune.core.index_values import IndexValues, is_index
from asmtune.core.inputs.patterns import FORMS, Pattern, pattern_of
from asmtune.core.inputs.shapes import parse_value, unique
from asmtune.core.kernel_module import configs_of, load_function
from asmtune.core.problem import GRID_LIMITS, Problem, jit_function
from asmtune.core.space.space import Space

# Longer text could nest too deeply for the parser and for `_value`.
_LENGTH: Final = 200
_LARGEST: Final = 1 << 63
_ALLOWED: Final = "whole numbers, names, + - * // % **"


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        raise ArithmeticError(f"{base} ** {exponent} is no whole number")
    if exponent >= _LARGEST.bit_length() and abs(base) > 1:
        raise ArithmeticError(f"{base} ** {exponent} is beyond 64 bits")
    return int(base**exponent)


def _next_power_of_2(number: int) -> int:
    if number < 1:
        raise ArithmeticError(f"next_power_of_2 of {number}")
    return 1 << (number - 1).bit_length()


_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_SIGNS: Final[Mapping[type[ast.unaryop], Callable[[int], int]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}

# Functions by name, with their least and largest number of arguments.
_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., int], int, int]]] = {
    "cdiv": (lambda number, divisor: (number + divisor - 1) // divisor, 2, 2),
    "max": (max, 2, _LENGTH),
    "min": (min, 2, _LENGTH),
    "next_power_of_2": (_next_power_of_2, 1, 1),
}


class Sizes:
    """Sizes of a grid or of a tensor as expressions.

    Args:
        option: the option that holds them, for messages ("--grid").
        text: expressions with commas between them ("cdiv(n, BLOCK), batch").
        limits: the largest value of each; as many expressions are allowed.

    Raises:
        InputError: it is not Python's syntax, or not plain arithmetic; says where.
    """

    def __init__(self, option: str, text: str, limits: Sequence[int]) -> None:
        self._option, self._text, self._limits = option, " ".join(text.split()), limits
        if len(self._text) > _LENGTH:
            raise self._error(f"{len(self._text)} characters, over {_LENGTH}")
        try:
            body = ast.parse(self._text, mode="eval").body
        except SyntaxError as error:
            raise self._error(f"{error.msg}, at position {error.offset or 1}") from error
        self._parts = body.elts if isinstance(body, ast.Tuple) else [body]
        if not 1 <= len(self._parts) <= len(limits):
            raise self._error(f"{len(self._parts)} sizes; expected 1 to {len(limits)}")
        for part in self._parts:
            self._check(part)

    def check_names(self, known: Iterable[str]) -> None:
        """Refuses a name that is not among the numbers of the launch.

        Raises:
            InputError: names it, and the nearest known one.
        """
        names = list(dict.fromkeys(known))
        for part in self._parts:
            for node in _names(part):
                if node.id not in names:
                    self._refuse(node, f"no number is called {node.id!r}; {_known(node.id, names)}")

    def __call__(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        """Computes the sizes from a launch's values by name.

        Raises:
            InputError: one is not a whole number from 1 to its limit; says under which values.
        """
        parts = zip(self._parts, self._limits, strict=False)
        return tuple(self._size(part, limit, values) for part, limit in parts)

    def _size(self, part: ast.expr, limit: int, values: Mapping[str, Any]) -> int:
        used = dict.fromkeys(node.id for node in _names(part))
        under = " ".join(f"{name}={values[name]}" for name in used if name in values)
        where = f"{ast.unparse(part)}, under {under}" if under else ast.unparse(part)
        try:
            size = _value(part, values)
        except ArithmeticError as error:
            raise self._error(f"{where}: {error}") from error
        if not 1 <= size <= limit:
            raise self._error(f"{where}, is {size}; expected a whole number from 1 to {limit:,}")
        return size

    def _check(self, node: ast.expr) -> None:
        """Refuses operations that are not listed above, at any depth."""
        match node:
            case ast.Name():
                pass
            case ast.Constant(value=number) if type(number) is int:
                pass
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _SIGNS:
                self._check(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                self._check(left)
                self._check(right)
            case ast.BinOp(op=ast.Div()):
                self._refuse(node, "/ gives fractions; write // or cdiv(a, b)")
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
                self._check_call(node, name, args)
            case ast.Call(func=ast.Name(id=name)) if name not in _FUNCTIONS:
                self._refuse(node, f"no function is called {name!r}; {_known(name, _FUNCTIONS)}")
            case _:
                allowed = f"{_ALLOWED}, {', '.join(_FUNCTIONS)}"
                self._refuse(node, f"{ast.unparse(node)} is not allowed; write {allowed}")

    def _check_call(self, node: ast.expr, name: str, args: Sequence[ast.expr]) -> None:
        _, fewest, most = _FUNCTIONS[name]
        if not fewest <= len(args) <= most:
            wanted = f"{fewest}" if fewest == most else f"at least {fewest}"
            self._refuse(node, f"{name} takes {wanted} arguments, not {len(args)}")
        for arg in args:
            self._check(arg)

    def _refuse(self, node: ast.expr, what: str) -> NoReturn:
        # Python counts the bytes before a node, the user characters.
        before = self._text.encode()[: node.col_offset].decode()
        raise self._error(f"{what} (position {len(before) + 1})")

    def _error(self, what: str) -> InputError:
        return InputError(f"{self._option} {self._text!r}: {what}")


def _known(name: str, names: Iterable[str]) -> str:
    names = list(names)
    return f"known: {', '.join(names) or 'none'}{did_you_mean(name, names)}"


def _names(node: ast.expr) -> Iterator[ast.Name]:
    """Yields the names of values, not of functions, in the order of the text."""
    names = [item for item in ast.walk(node) if isinstance(item, ast.Name)]
    called = [item.func for item in ast.walk(node) if isinstance(item, ast.Call)]
    return iter(sorted((n for n in names if n not in called), key=lambda n: n.col_offset))


def _value(node: ast.expr, values: Mapping[str, Any]) -> int:
    """Evaluates a checked expression.

    Raises:
        ArithmeticError: it has no value, or one beyond 64 bits.
    """
    match node:
        case ast.Constant(value=int(number)):
            value = number
        case ast.Name(id=name) if isinstance(values.get(name), int):
            value = int(values[name])
        case ast.Name(id=name):
            raise ArithmeticError(f"{name} is {values.get(name)!r}, no whole number")
        case ast.UnaryOp(op=sign, operand=operand):
            value = _SIGNS[type(sign)](_value(operand, values))
        case ast.BinOp(left=left, op=op, right=right):
            value = _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.Call(func=ast.Name(id=name), args=args):
            value = _FUNCTIONS[name][0](*(_value(arg, values) for arg in args))
        case _:
            raise ArithmeticError(f"{ast.unparse(node)} was not checked")
    if abs(value) > _LARGEST:
        raise ArithmeticError(f"{ast.unparse(node)} is beyond 64 bits")
    return value


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
    _check_sizes(kernel, values, grid)
    values |= {n: v.sized(n, numbers) for n, v in values.items() if isinstance(v, Pointer)}
    drawn = {n: _index_tensor(n, v, numbers) for n, v in values.items() if isinstance(v, Pattern)}
    values |= {name: tensor for name, (tensor, _) in drawn.items()}
    bound = {n: v for n, v in values.items() if n in jit_function(kernel).arg_names}
    known = {name: table for name, (_, table) in drawn.items()}
    problem = Problem(kernel, bound, (1,), numbers, index_values=known)
    if grid is None:
        return problem, space
    return replace(problem, grid=_grid(grid, problem, space)), space


def _check_sizes(kernel: Any, values: Mapping[str, Any], grid: str | None) -> None:
    """Refuses a number that is no parameter of the kernel, and that no size names.

    Raises:
        ProblemError: names it.
    """
    sizes = (v.sizes or "" for v in values.values() if isinstance(v, Pointer | Pattern))
    patterns = (v.text for v in values.values() if isinstance(v, Pattern))
    named = set(re.findall(r"\w+", " ".join([*sizes, *patterns, grid or ""])))
    known = jit_function(kernel).arg_names
    for name in values:
        if name not in known and name not in named:
            raise ProblemError(
                f"kernel {jit_function(kernel).__name__} has no parameter {name!r}: its parameters "
                f"are {', '.join(known)}{did_you_mean(name, known)}; no size names it either"
            )


def assumptions_of(problem: Problem) -> tuple[str, ...]:
    """Lists the assumptions of a report on a plain function, a sentence each."""
    notes = []
    if problem.grid == (1,):
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
    name, equals, value = (part.strip() for part in text.partition("="))
    parameters = {p.name: p for p in jit_function(kernel).params}
    if not equals or not value:
        raise InputError(f"--arg: {text!r} is not NAME=VALUE")
    parsed = parse_value(value)
    if name not in parameters:
        if type(parsed) is int:  # a size that tensors' shapes or the grid may name
            return name, parsed
        raise ProblemError(
            f"kernel {jit_function(kernel).__name__} has no parameter {name!r}: "
            f"its parameters are {', '.join(parameters)}"
        )
    if isinstance(parsed, int) and abs(parsed) > _LARGEST:
        raise InputError(f"--arg: {name} is {shortened(value)}, beyond 64 bits")
    if not isinstance(parsed, str):
        return name, parsed
    if parameters[name].is_constexpr:
        return name, _constexpr(parsed)
    if "(" in parsed:
        return name, Pattern.parse(f"--arg {name}", parsed)
    parts = _POINTER.fullmatch(parsed)
    if parts is None:
        raise InputError(
            f"--arg: {text!r}: a pointer is written as {name}=fp16[M,K], the values of an index "
            f"tensor as {FORMS}"
        )
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


def _index_tensor(
    name: str, pattern: Pattern, numbers: Mapping[str, Any]
) -> tuple[Any, IndexValues]:
    """Makes an index tensor without memory, and what a pattern says that it holds."""
    dtype = torch_dtype(pattern.dtype or "i32")
    if pattern.sizes is not None:
        tensor = Pointer(dtype, pattern.sizes).sized(name, numbers)
        return tensor, pattern.draw(int(tensor.numel()), numbers)
    import torch

    table = pattern.draw(None, numbers)
    return torch.empty(table.elements, dtype=dtype, device="meta"), table


def with_patterns(problem: Problem, arguments: Sequence[str]) -> Problem:
    """Gives index tensors of a kernel module's problem the values of patterns, "name=..." each.

    Raises:
        InputError: one is no pattern, or the kernel has no such index tensor.
    """
    known = unique("--arg", (_pattern(problem, text) for text in arguments))
    return replace(problem, index_values={**problem.index_values, **known})


def _pattern(problem: Problem, text: str) -> tuple[str, IndexValues]:
    name, _, pattern = (part.strip() for part in text.partition("="))
    tensors = {n: v for n, v in problem.arguments.items() if is_index(v)}
    if "(" not in pattern:
        raise InputError(
            "--arg is for a plain function, named as file.py:function; to a kernel module it "
            f"gives the values of an index tensor, as NAME=PATTERN: {FORMS}"
        )
    if name not in tensors:
        raise InputError(f"--arg {name}: no index tensor has this name; {_known(name, tensors)}")
    return name, pattern_of(name, pattern, tensors[name], problem.shape)


def _grid(text: str, problem: Problem, space: Space) -> Callable[[Mapping[str, Any]], Any]:
    sizes = Sizes("--grid", text, GRID_LIMITS)
    parameters = jit_function(problem.kernel).params
    others = problem.arguments.keys() - problem.shape.keys()
    names = [p.name for p in parameters if p.name not in others]
    sizes.check_names([*names, *problem.shape, *space.axes, *OPTION_AXES])
    defaults = {p.name: p.default for p in parameters if p.has_default}
    known = {**defaults, **problem.shape}
    return lambda values: sizes({**known, **values})


def _constexpr(text: str) -> Any:
    """Returns the dtype that a text names, as in `ACC=fp32`, else the text."""
    import triton.language as tl

    if text in TORCH_NAMES or text.removeprefix("tl.") in TORCH_NAMES.values():
        return getattr(tl, tl.dtype(canonical_dtype(text)).__repr__().split(".")[-1], text)
    return text
