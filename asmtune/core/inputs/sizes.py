"""Sizes as arithmetic expressions of names: `cdiv(n, BLOCK), batch`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from asmtune.base.errors import InputError
from asmtune.base.text import did_you_mean

# Longer text could nest too deeply for the parser.
_LENGTH: Final = 200
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
# No powers: whatever 200 characters of these compute takes no time and no memory.
_ALLOWED: Final = (
    *(ast.Name, ast.Load, ast.Constant, ast.Call, ast.UnaryOp, ast.UAdd, ast.USub),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod),
)
_FORMS: Final = f"whole numbers, names, + - * // %, {', '.join(_FUNCTIONS)}"


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
            for node in ast.walk(part):
                self._check(node)

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
        for node in (node for part in self._parts for node in _names(part)):
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
        used = {name: values.get(name) for name in dict.fromkeys(n.id for n in _names(part))}
        under = " ".join(f"{name}={value}" for name, value in used.items())
        where = f"{ast.unparse(part)}, under {under}" if under else ast.unparse(part)
        odd = next((name for name, value in used.items() if not isinstance(value, int)), None)
        if odd is not None:
            raise self._error(f"{odd} is {used[odd]!r}, no whole number")
        code = compile(ast.Expression(part), self._option, "eval")
        try:
            size = int(eval(code, {"__builtins__": {}, **_FUNCTIONS}, used))
        except (ArithmeticError, TypeError) as error:
            raise self._error(f"{where}: {error}") from error
        if not 1 <= size <= limit:
            raise self._error(f"{where}, is {size}; expected a whole number from 1 to {limit:,}")
        return size

    def _check(self, node: ast.AST) -> None:
        """Refuse all but whole numbers, names, and the operators and functions above."""
        if isinstance(node, ast.Div):
            raise self._error("/ gives fractions; write // or cdiv(a, b)")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if (name := node.func.id) not in _FUNCTIONS:
                self._refuse(node, f"no function is called {name!r}; {listed(name, _FUNCTIONS)}")
            is_allowed = not node.keywords
        else:
            is_number = not isinstance(node, ast.Constant) or type(node.value) is int
            is_allowed = isinstance(node, _ALLOWED) and is_number and not isinstance(node, ast.Call)
        if not is_allowed:
            shown = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            self._refuse(node, f"{shown} is not allowed; write {_FORMS}")

    def _refuse(self, node: ast.AST, what: str) -> NoReturn:
        # Python counts the bytes before a node, the user characters; operators have no place.
        before = self._text.encode()[: getattr(node, "col_offset", 0)].decode()
        raise self._error(f"{what} (position {len(before) + 1})")

    def _error(self, what: str) -> InputError:
        return InputError(f"{self._option} {self._text!r}: {what}")


def listed(name: str, names: Iterable[str]) -> str:
    """List names for the message of an unknown one, with the nearest."""
    names = list(names)
    return f"known: {', '.join(names) or 'none'}{did_you_mean(name, names)}"


def _names(node: ast.expr) -> list[ast.Name]:
    """Return the names of values, not of functions, in the order of the text."""
    names = [item for item in ast.walk(node) if isinstance(item, ast.Name)]
    called = [item.func for item in ast.walk(node) if isinstance(item, ast.Call)]
    return sorted((n for n in names if n not in called), key=lambda n: n.col_offset)
