"""Sizes as arithmetic expressions of names: `cdiv(n, BLOCK), batch`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean

# Longer text could nest too deeply for the parser and for `_value`.
_LENGTH: Final = 200
LARGEST: Final = 1 << 63
"""The largest number that a size or an argument may be."""
_ALLOWED: Final = "whole numbers, names, + - * // % **"


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        raise ArithmeticError(f"{base} ** {exponent} is no whole number")
    if exponent >= LARGEST.bit_length() and abs(base) > 1:
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

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the values that the sizes depend on, each once."""
        return tuple(dict.fromkeys(node.id for part in self._parts for node in _names(part)))

    def check_names(self, names_known: Iterable[str]) -> None:
        """Refuse a name that is not among the numbers of the launch.

        Raises:
            InputError: names it, and the nearest known one.
        """
        names = list(dict.fromkeys(names_known))
        for part in self._parts:
            for node in _names(part):
                if node.id not in names:
                    self._refuse(node, f"no number is called {node.id!r}; {listed(node.id, names)}")

    def __call__(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        """Compute the sizes from a launch's values by name.

        Raises:
            InputError: one is not a whole number from 1 to its limit; says under which values.
        """
        parts = zip(self._parts, self._limits, strict=False)
        return tuple(self._size(part, limit, values) for part, limit in parts)

    def _size(self, part: ast.expr, limit: int, values: Mapping[str, Any]) -> int:
        try:
            size = _value(part, values)
        except ArithmeticError as error:
            raise self._error(f"{_under(part, values)}: {error}") from error
        if not 1 <= size <= limit:
            where = _under(part, values)
            raise self._error(f"{where}, is {size}; expected a whole number from 1 to {limit:,}")
        return size

    def _check(self, node: ast.expr) -> None:
        """Refuse operations that are not listed above, at any depth."""
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
                self._refuse(node, f"no function is called {name!r}; {listed(name, _FUNCTIONS)}")
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


def listed(name: str, names: Iterable[str]) -> str:
    """List names for the message of an unknown one, with the nearest."""
    names = list(names)
    return f"known: {', '.join(names) or 'none'}{did_you_mean(name, names)}"


def _names(node: ast.expr) -> Iterator[ast.Name]:
    """Yield the names of values, not of functions, in the order of the text."""
    names = [item for item in ast.walk(node) if isinstance(item, ast.Name)]
    called = [item.func for item in ast.walk(node) if isinstance(item, ast.Call)]
    return iter(sorted((n for n in names if n not in called), key=lambda n: n.col_offset))


def _under(part: ast.expr, values: Mapping[str, Any]) -> str:
    """Return the text of a size with the values that it depends on, for messages."""
    used = dict.fromkeys(node.id for node in _names(part))
    under = " ".join(f"{name}={values[name]}" for name in used if name in values)
    return f"{ast.unparse(part)}, under {under}" if under else ast.unparse(part)


def _value(node: ast.expr, values: Mapping[str, Any]) -> int:
    """Evaluate a checked expression.

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
    if abs(value) > LARGEST:
        raise ArithmeticError(f"{ast.unparse(node)} is beyond 64 bits")
    return value
