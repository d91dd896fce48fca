"""Checks of single JSON values, and the errors that they raise.

Each check takes a value that a JSON parser returned and `where`, the path of its field. It
returns the checked value, or raises an `InputError` of one line that names the field.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from asmtune.base.errors import InputError
from asmtune.base.text import shortened


def parse_json(text: str | bytes) -> Any:
    """Parses JSON without NaN, infinities and repeated names.

    Raises:
        ValueError: the text is not such JSON, or nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def json_of(text: Any, where: str) -> Any:
    """Parses the JSON text of a database column.

    Raises:
        InputError: it is not JSON text.
    """
    if not isinstance(text, str):
        raise expected("JSON text", where, text)
    try:
        return parse_json(text)
    except ValueError as error:
        raise fault(where, f"not JSON ({error})") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number here")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError(f"a name is repeated among {shown(sorted(name for name, _ in pairs))}")
    return values


def printable(text: str) -> str:
    """Escapes newlines and control codes of text that may come from a damaged file."""
    return text if text.isprintable() else ascii(text)


def shown(value: Any) -> str:
    """Formats a value for a message: one line of 60 characters at most."""
    return shortened(ascii(value))


def fault(where: str, text: str) -> InputError:
    """Builds the error of a malformed field, in one line even where a name holds newlines."""
    return InputError(f"{printable(where)}: {text}")


def expected(what: str, where: str, value: Any) -> InputError:
    """Builds the error of a field with a wrong value."""
    return fault(where, f"expected {what}, got {shown(value)}")


def fields_of(
    value: Any, where: str, required: Iterable[str], optional: Iterable[str] = ()
) -> Mapping[str, Any]:
    """Checks for an object with all required fields and none besides them and the optional."""
    if not isinstance(value, Mapping):
        raise expected("an object", where, value)
    required = tuple(required)
    for name in required:
        if name not in value:
            raise fault(where, f"field {name!r} is missing")
    unknown = [name for name in value if name not in (*required, *optional)]
    if unknown:
        raise fault(where, f"unknown field {shown(unknown[0])}")
    return value


def names_of(value: Any, where: str) -> Mapping[str, Any]:
    """Checks for an object whose names are text."""
    if not isinstance(value, Mapping):
        raise expected("an object", where, value)
    for name in value:
        text_of(name, f"{where}: name")
    return value


def scalar_of(value: Any, where: str) -> Any:
    """Checks for a value that JSON and every database store exactly."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        return int(value)
    if isinstance(value, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if isinstance(value, str):
        return text_of(value, where)
    raise expected("a finite number, a string, a boolean or null", where, value)


def text_of(value: Any, where: str) -> str:
    """Checks for text that UTF-8 can encode, without NUL, which PostgreSQL cannot store."""
    with suppress(UnicodeEncodeError):
        if isinstance(value, str) and b"\0" not in value.encode():
            return str(value)
    raise expected("text", where, value)


def time_of(value: Any, where: str) -> float:
    """Checks for a time in microseconds, finite and not negative."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= sys.float_info.max:
        raise expected("a finite time of 0 or more, in microseconds", where, value)
    return float(value) + 0.0  # SQLite gives -0.0 back as 0.0
