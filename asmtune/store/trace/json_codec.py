"""The lines of a trace: records as JSON values, and back, each field checked by its type."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from asmtune.base.errors import InputError
from asmtune.core.config import OPTION_DEFAULTS, Config
from asmtune.core.records.artifacts import Failure
from asmtune.store.trace.run import Header, TimedRow, Timing

T = TypeVar("T")

FORMAT: Final = "asmtune-trace"
VERSION: Final = 1

_DIGITS: Final = 6  # significant; a timing is known to three
_SHOWN: Final = 60
_FUNCTION: Final = "function"


def encoded(record: Any) -> Any:
    """A record of `asmtune.store.trace.run` as JSON values; what is None is left out.

    Numbers keep 6 significant digits, and those that JSON does not have become null.
    """
    if isinstance(record, TimedRow):
        name = "failure" if isinstance(record.outcome, Failure) else None
        outcome = encoded(record.outcome)
        return {"config": encoded(record.config)} | ({name: outcome} if name else outcome)
    if isinstance(record, Config):
        return encoded(record.to_dict())
    if is_dataclass(record) and not isinstance(record, type):
        named = ((field.name, getattr(record, field.name)) for field in fields(record))
        return {name: encoded(value) for name, value in named if value is not None}
    if isinstance(record, Mapping):
        return {str(name): encoded(value) for name, value in record.items()}
    if isinstance(record, list | tuple):
        return [encoded(value) for value in record]
    if isinstance(record, float):
        return float(f"{record:.{_DIGITS}g}") if math.isfinite(record) else None
    return record if isinstance(record, str | int | None) else str(record)


def encoded_header(header: Header, run: str) -> dict[str, Any]:
    """The fields of a trace's first line; the key's stand beside the others."""
    values = encoded(header)
    key = values.pop("key")
    key[_FUNCTION] = key.pop("kernel")
    return {"format": FORMAT, "version": VERSION, "run": run, **values, **key}


def decoded_header(values: Mapping[str, Any], where: str) -> tuple[str, Header]:
    """The run's id and what it set out to do.

    Raises:
        InputError: it is not of this form, or a newer asmtune has written it.
    """
    version = values.get("version")
    if values.get("format") != FORMAT or type(version) is not int:
        raise InputError(f"{where}: expected the start of a trace that asmtune has written")
    if version > VERSION:
        raise InputError(
            f"{where}: written by a newer asmtune (form {version}, this one knows {VERSION}); "
            "upgrade asmtune"
        )
    key = {name: values.get(name) for name in ("shape", "dtypes", "device")}
    named = {**values, "key": {"kernel": values.get(_FUNCTION), **key}}
    return decoded(str, values.get("run"), f"{where}, run"), decoded(Header, named, where)


def decoded(kind: type[T], value: Any, where: str) -> T:
    """A value of a type of `asmtune.store.trace.run` from JSON values.

    Raises:
        InputError: it is not of that type; says where, and which field.
    """
    made: T = _decoded(kind, value, where)
    return made


def _decoded(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if special := _SPECIAL.get(kind):
        return special(value, where)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else _decoded(inner, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise _expected("a list", value, where)
        return tuple(_decoded(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if not isinstance(value, dict):
        raise _expected("an object", value, where)
    if is_dataclass(kind):
        return _dataclass(kind, value, where)
    return {name: _decoded(arguments[1], item, f"{where}, {name}") for name, item in value.items()}


def _dataclass(kind: Any, value: Mapping[str, Any], where: str) -> Any:
    values = {}
    for name, hint in _hints(kind).items():
        values[name] = _decoded(hint, value.get(name), f"{where}, {name}")
        if name.endswith("_us") and values[name] is not None and values[name] <= 0:
            raise _expected("a time above 0", value[name], f"{where}, {name}")
    return kind(**values)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _timed(value: Any, where: str) -> TimedRow:
    if not isinstance(value, dict):
        raise _expected("an object", value, where)
    config = _config(value.get("config"), f"{where}, config")
    if "failure" in value:
        return TimedRow(config, decoded(Failure, value["failure"], f"{where}, failure"))
    return TimedRow(config, decoded(Timing, value, where))


def _config(value: Any, where: str) -> Config:
    if not isinstance(value, dict):
        raise _expected("an object", value, where)
    for name, item in value.items():
        if isinstance(item, dict | list):
            raise _expected("a number, a text, true, false or null", item, f"{where}, {name}")
        if name in OPTION_DEFAULTS and (type(item) is not int or item < 0):
            raise _expected("a whole number", item, f"{where}, {name}")
        if name == "ir_override" and not isinstance(item, str):
            raise _expected("a file's name", item, f"{where}, {name}")
    return Config.from_dict(value)


def _number(value: Any, where: str) -> float:
    if type(value) not in (int, float):
        raise _expected("a number", value, where)
    try:
        number = float(value)
    except OverflowError:  # whole numbers of JSON have no limit
        number = math.inf
    if not math.isfinite(number):
        raise _expected("a finite number", value, where)
    return number


def _exactly(kind: type, words: str) -> Callable[[Any, str], Any]:
    def check(value: Any, where: str) -> Any:
        if type(value) is not kind:
            raise _expected(words, value, where)
        return value

    return check


_SPECIAL: Final[Mapping[Any, Callable[[Any, str], Any]]] = {
    float: _number,
    int: _exactly(int, "a whole number"),
    bool: _exactly(bool, "true or false"),
    str: _exactly(str, "a text"),
    Config: _config,
    TimedRow: _timed,
}


def _expected(what: str, value: Any, where: str) -> InputError:
    text = "nothing" if value is None else json.dumps(value)
    text = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
    return InputError(f"{where}: expected {what}, found {text}")
