"""Values of stored configs as Python literals, and back.

A store holds dtypes and tuples as text. A literal has the value that a kernel takes, with `tl` for
Triton's language; a text that names a dtype is taken for the dtype.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from asmtune.base.errors import InputError

_DTYPES: Final[Mapping[str, str]] = {
    "bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64",
    "fp8e4nv": "float8e4nv", "fp8e4b8": "float8e4b8", "fp8e4b15": "float8e4b15",
    "fp8e5": "float8e5", "fp8e5b16": "float8e5b16", "int1": "int1",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Names of dtypes in `triton.language` by the text that a store holds."""

_TEXTS: Final = {name: text for text, name in _DTYPES.items()}
LANGUAGE: Final = "triton.language"


def dict_literal(values: Mapping[str, Any]) -> str:
    """Write the stored values of a config as a dict."""
    items = ", ".join(f"{name!r}: {value_literal(value)}" for name, value in values.items())
    return f"{{{items}}}"


def value_literal(value: Any) -> str:
    """Write a stored value of a config: as a dtype or a tuple if it is the text of one."""
    if not isinstance(value, str):
        return repr(value)
    if value in _DTYPES:
        return f"tl.{_DTYPES[value]}"
    literal = None
    if value.startswith("("):
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            literal = _tuple_text(ast.parse(value, mode="eval").body, "tl")
    return repr(value) if literal is None else literal


def _dtype_name(node: ast.Attribute) -> str | None:
    """Return the name of a dtype that an expression takes from Triton's language."""
    module, _, name = ast.unparse(node).rpartition(".")
    return name if module in ("tl", LANGUAGE) and name in _TEXTS else None


class _DtypesFrom(ast.NodeTransformer):
    """Takes the dtypes in an expression from `module`."""

    def __init__(self, module: str) -> None:
        self._module = module

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Name the same dtype of the module."""
        name = _dtype_name(node)
        return node if name is None else ast.Name(f"{self._module}.{name}")


class _AsStored(ast.NodeTransformer):
    """Replaces dtypes and tuples by the text that a store holds."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Replace a dtype."""
        name = _dtype_name(node)
        return node if name is None else ast.Constant(_TEXTS[name])

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        """Replace a tuple."""
        text = _tuple_text(node, LANGUAGE)
        return node if text is None else ast.Constant(text)


_IN_TUPLES: Final = (ast.Tuple, ast.Constant, ast.UnaryOp, ast.USub, ast.Load)


def _tuple_text(node: ast.expr, module: str) -> str | None:
    """Write a tuple of literals and of the dtypes of a module; None of another expression."""
    if not isinstance(node, ast.Tuple):
        return None
    renamed = _DtypesFrom(module).visit(node)
    # No other name has a dot.
    is_plain = all(
        isinstance(part, _IN_TUPLES) or (isinstance(part, ast.Name) and "." in part.id)
        for part in ast.walk(renamed)
    )
    return ast.unparse(renamed) if is_plain else None


def read_literal(node: ast.expr | None, what: str, *, as_stored: bool = False) -> Any:
    """Read a literal off the syntax tree; None if there is none.

    Args:
        node: the expression.
        what: its name in messages.
        as_stored: gives the text that a store holds in the place of dtypes and tuples.

    Raises:
        InputError: it is another expression.
    """
    if node is None:
        return None
    try:
        return ast.literal_eval(_AsStored().visit(node) if as_stored else node)
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError) as error:
        line = getattr(node, "lineno", "?")
        raise InputError(f"line {line}: {what} is no literal") from error
