"""Frozen dataclasses read from JSON values, each field by its type."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from asmtune.base import json_checks

T = TypeVar("T")

Decoder = Callable[[Any, str], Any]
"""Takes a JSON value and where it stands; raises an `InputError` that says both."""


def to_json(record: Any) -> Any:
    """Converts a record to JSON values.

    Dataclasses become objects of their fields; what has `to_dict`, as a config, becomes that.
    """
    if isinstance(record, type):
        return str(record)
    if hasattr(record, "to_dict"):
        return record.to_dict()
    if is_dataclass(record):
        return {field.name: to_json(getattr(record, field.name)) for field in fields(record)}
    if isinstance(record, Mapping):
        return {str(name): to_json(value) for name, value in record.items()}
    if isinstance(record, list | tuple):
        return [to_json(value) for value in record]
    return record if isinstance(record, str | int | float | bool | None) else str(record)


@dataclass(frozen=True, kw_only=True)
class JsonCodec:
    """Reads dataclasses, optional types, tuples of one type and mappings by their type hints.

    Attributes:
        decoders: read all other types, and those whose JSON is not the object of their fields.
            Without one for `Any`, such a value is taken as it is.
        error: builds an error from what was expected, where, and the value given.
        separator: stands between the name of an object and of a field in it.
        exact: an object has all fields of its dataclass and no others. Otherwise a missing field
            is read as null, and others are ignored.
        check: is called with the name, the value and the place of each field that was read, and
            raises where that type's value does not suit that field.
    """

    decoders: Mapping[Any, Decoder]
    error: Callable[[str, str, Any], Exception] = json_checks.expected
    separator: str = "."
    exact: bool = True
    check: Callable[[str, Any, str], None] | None = None

    def read(self, kind: type[T], value: Any, where: str) -> T:
        """Reads a value of a type.

        Raises:
            InputError: it is not of that type; names the field.
        """
        return cast("T", self._read(kind, value, where))

    def read_fields(self, kind: Any, value: Any, where: str) -> Any:
        """Reads an object by the fields of a dataclass, though it has a decoder of its own.

        Raises:
            InputError: as `read`.
        """
        hints = _hints(kind)
        if self.exact:
            json_checks.fields_of(value, where, hints)
        elif not isinstance(value, Mapping):
            raise self.error("an object", where, value)
        values = {}
        for name, hint in hints.items():
            place = f"{where}{self.separator}{name}"
            values[name] = self._read(hint, value.get(name), place)
            if self.check is not None:
                self.check(name, values[name], place)
        return kind(**values)

    def _read(self, kind: Any, value: Any, where: str) -> Any:
        if decoder := self.decoders.get(kind):
            return decoder(value, where)
        if kind is Any:
            return value
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            (inner,) = (argument for argument in arguments if argument is not type(None))
            return None if value is None else self._read(inner, value, where)
        if origin is tuple:
            return self._read_tuple(arguments[0], value, where)
        if is_dataclass(kind):
            return self.read_fields(kind, value, where)
        return self._read_mapping(arguments[1], value, where)

    def _read_tuple(self, kind: Any, value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise self.error("a list", where, value)
        return tuple(self._read(kind, item, f"{where}[{i}]") for i, item in enumerate(value))

    def _read_mapping(self, kind: Any, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise self.error("an object", where, value)
        names = [self._read(str, name, f"{where}: name") for name in value]
        places = [f"{where}{self.separator}{name}" for name in names]
        return {n: self._read(kind, value[n], p) for n, p in zip(names, places, strict=True)}


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
