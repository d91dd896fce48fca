"""NAME=VALUE on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from asmtune.base.errors import InputError

T = TypeVar("T")


def parse_assignments(text: str, option: str) -> dict[str, Any]:
    """Reads "M=4096,causal=true" as a mapping.

    Raises:
        InputError: a part is not NAME=VALUE; shows it.
    """
    return unique(option, (_assignment(part, option) for part in text.split(",")))


def unique(option: str, pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Pairs as a mapping.

    Raises:
        InputError: a name is given twice.
    """
    values: dict[str, T] = {}
    for name, value in pairs:
        if name in values:
            raise InputError(f"{option}: {name} is given twice")
        values[name] = value
    return values


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


def parse_axis(text: str) -> tuple[str, list[Any]]:
    """Reads "BLOCK=128,256" as a name and its values.

    Raises:
        InputError: it is of another form.
    """
    name, equals, values = text.partition("=")
    parts = [value.strip() for value in values.split(",")]
    if not equals or not name.strip() or not all(parts):
        raise InputError(f"--axis: {text!r} is not NAME=VALUE,VALUE,...")
    return name.strip(), [parse_value(part) for part in parts]
