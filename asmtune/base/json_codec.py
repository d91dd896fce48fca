"""JSON: checks of single values, and a codec of frozen dataclasses.

Each check takes a value that a JSON parser returned and `where`, the path of its field. It
returns the checked value, or raises an `InputError` of one line that names the field.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from typing import (
    Any,
    Final,
    NoReturn,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from asmtune.base.errors import InputError
from asmtune.base.text import shortened


def parse_json(text: str | bytes) -> Any:
    """Parse JSON without NaN, infinities and repeated names.

    Raises:
        ValueError: the text is not such JSON, or nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text))
    try:
        return DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def json_of(text: Any, where: str) -> Any:
    """Parse the JSON text of a database column.

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


DECODER: Final = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_unique)
"""Decodes JSON without NaN, infinities and repeated names."""


def printable(text: str) -> str:
    """Escape newlines, control codes and marks of direction: what a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shown(value: Any) -> str:
    """Format a value for a message: one line of 60 characters at most."""
    return shortened(" ".join(ascii(value).split()))  # a tensor shows itself on many lines


def fault(where: str, text: str) -> InputError:
    """Build the error of a malformed field, in one line even where a name holds newlines."""
    return InputError(f"{printable(where)}: {text}")


def expected(what: str, where: str, value: Any) -> InputError:
    """Build the error of a field with a wrong value."""
    return fault(where, f"expected {what}, got {shown(value)}")


def fields_of(value: Any, where: str, required: Iterable[str]) -> Mapping[str, Any]:
    """Check for an object with all required fields and no others."""
    if not isinstance(value, Mapping):
        raise expected("an object", where, value)
    required = tuple(required)
    for name in required:
        if name not in value:
            raise fault(where, f"field {name!r} is missing")
    unknown = [name for name in value if name not in required]
    if unknown:
        raise fault(where, f"unknown field {shown(unknown[0])}")
    return value


def names_of(value: Any, where: str) -> Mapping[str, Any]:
    """Check for an object whose names are text."""
    if not isinstance(value, Mapping):
        raise expected("an object", where, value)
    for name in value:
        text_of(name, f"{where}: name")
    return value


def scalar_of(value: Any, where: str) -> Any:
    """Check for a value that JSON and every database store exactly."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        return int(value)
    if isinstance(value, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if isinstance(value, str):
        return text_of(value, where)
    raise expected("a finite number, a string, a boolean or null", where, value)


def scalars_of(value: Any, where: str) -> dict[str, Any]:
    """Check for an object whose names are text and whose values `scalar_of` takes."""
    named = names_of(value, where)
    return {name: scalar_of(item, f"{where}.{name}") for name, item in named.items()}


def text_of(value: Any, where: str) -> str:
    """Check for text that UTF-8 can encode, without NUL, which PostgreSQL cannot store."""
    if isinstance(value, str):
        if value.isprintable():  # so that it has neither NUL nor a lone surrogate
            return str(value)
        with suppress(UnicodeEncodeError):
            if b"\0" not in value.encode():
                return str(value)
    raise expected("text", where, value)


def time_of(value: Any, where: str) -> float:
    """Check for a time in microseconds, finite and not negative."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= sys.float_info.max:
        raise expected("a finite time of 0 or more, in microseconds", where, value)
    return float(value) + 0.0  # SQLite gives -0.0 back as 0.0


def flag_of(value: Any, where: str) -> bool:
    """Check for true or false."""
    if not isinstance(value, bool):
        raise expected("true or false", where, value)
    return value


def whole_of(value: Any, where: str) -> int:
    """Check for a whole number of 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 63:
        raise expected("a whole number", where, value)
    return value


def number_of(value: Any, where: str) -> float:
    """Check for a number that is finite as a float; a whole one stays whole."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= sys.float_info.max:
        raise expected("a finite number", where, value)
    return float(value) if isinstance(value, float) else value


T = TypeVar("T")

Decoder = Callable[[Any, str], Any]
"""Takes a JSON value and where it stands; raises an `InputError` that says both."""


def to_json(record: Any) -> Any:
    """Convert a record to JSON values.

    Dataclasses become objects of their fields; what has `to_dict`, as a config, becomes that.
    """
    if isinstance(record, type):
        return str(record)
    if hasattr(record, "to_dict"):
        return record.to_dict()
    if is_dataclass(record):
        return {one.name: to_json(getattr(record, one.name)) for one in fields(record)}
    if isinstance(record, Mapping):
        return {str(name): to_json(value) for name, value in record.items()}
    if isinstance(record, list | tuple):
        return [to_json(value) for value in record]
    return record if isinstance(record, str | int | float | bool | None) else str(record)


_BASIC: Final[Mapping[Any, Decoder]] = {
    str: text_of,
    bool: flag_of,
    int: whole_of,
    float: number_of,
}


@dataclass(frozen=True, kw_only=True)
class JsonCodec:
    """Reads dataclasses, optional types, tuples of one type and mappings by their type hints.

    Attributes:
        decoders: read all other types, and those whose JSON is not the object of their fields.
            Without one for `Any`, such a value is taken as it is; text, numbers and flags are
            checked by the functions above.
        exact: an object has all fields of its dataclass and no others. Otherwise a missing field
            is read as null, and others are ignored.
        check: is called with the name, the value and the place of each field that was read, and
            raises where that type's value does not suit that field.
    """

    decoders: Mapping[Any, Decoder]
    exact: bool = True
    check: Callable[[str, Any, str], None] | None = None
    _made: dict[Any, Decoder] = field(default_factory=dict, init=False, repr=False, compare=False)
    _fields: dict[Any, dict[str, Decoder]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def read(self, kind: type[T], value: Any, where: str) -> T:
        """Read a value of a type.

        Raises:
            InputError: it is not of that type; names the field.
        """
        return cast("T", self._decoder(kind)(value, where))

    def read_fields(self, kind: Any, value: Any, where: str) -> Any:
        """Read an object by the fields of a dataclass, though it has a decoder of its own.

        Raises:
            InputError: as `read`.
        """
        decoders = self._fields.get(kind)
        if decoders is None:
            hints = get_type_hints(kind)
            decoders = {name: self._decoder(hint) for name, hint in hints.items()}
            self._fields[kind] = decoders
        if not isinstance(value, Mapping):
            raise expected("an object", where, value)
        if self.exact and value.keys() != decoders.keys():
            fields_of(value, where, decoders)
        start, check, values = f"{where}.", self.check, {}
        for name, decode in decoders.items():
            values[name] = decode(value.get(name), start + name)
            if check is not None:
                check(name, values[name], start + name)
        return kind(**values)

    def _decoder(self, kind: Any) -> Decoder:
        """Return the decoder of a type, made once: that is slower than most values are read."""
        decoder = self.decoders.get(kind) or _BASIC.get(kind) or self._made.get(kind)
        if decoder is None:
            decoder = self._made[kind] = self._decoder_of(kind)
        return decoder

    def _decoder_of(self, kind: Any) -> Decoder:
        if kind is Any:
            return lambda value, _: value
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            (inner,) = (argument for argument in arguments if argument is not type(None))
            decode = self._decoder(inner)
            return lambda value, where: None if value is None else decode(value, where)
        if origin is tuple:
            return partial(self._read_tuple, self._decoder(arguments[0]))
        if is_dataclass(kind):
            return partial(self.read_fields, kind)
        return partial(self._read_mapping, self._decoder(str), self._decoder(arguments[1]))

    def _read_tuple(self, decode: Decoder, value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise expected("a list", where, value)
        return tuple([decode(item, f"{where}[{i}]") for i, item in enumerate(value)])

    def _read_mapping(
        self, name_of: Decoder, decode: Decoder, value: Any, where: str
    ) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise expected("an object", where, value)
        of_names, start = f"{where}: name", f"{where}."
        names = [name_of(name, of_names) for name in value]
        return {name: decode(value[name], start + name) for name in names}
