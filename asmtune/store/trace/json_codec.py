"""The lines of a trace: records as JSON values, and back, each field checked by its type."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeVar

from asmtune.base.errors import InputError
from asmtune.base.json_codec import Decoder, JsonCodec
from asmtune.base.text import shortened
from asmtune.core.config import OPTION_DEFAULTS, Config
from asmtune.core.records.artifacts import Failure
from asmtune.store.trace.run import Header, TimedRow, Timing

T = TypeVar("T")

FORMAT: Final = "asmtune-trace"
VERSION: Final = 1

_DIGITS: Final = 6  # significant; a timing is known to three
_FUNCTION: Final = "function"


def encoded(record: Any) -> Any:
    """Convert a record of `asmtune.store.trace.run` to JSON values; leave out what is None.

    Numbers keep 6 significant digits, and those that JSON does not have become null.
    """
    if isinstance(record, TimedRow):
        outcome = encoded(record.outcome)
        failed = isinstance(record.outcome, Failure)
        return {"config": encoded(record.config), **({"failure": outcome} if failed else outcome)}
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
    """Return the fields of a trace's first line; the key's fields stand beside the others."""
    values = encoded(header)
    key = values.pop("key")
    key[_FUNCTION] = key.pop("kernel")
    return {"format": FORMAT, "version": VERSION, "run": run, **values, **key}


def decoded_header(values: Mapping[str, Any], where: str) -> tuple[str, Header]:
    """Read the run's id and header.

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
    """Read a value of a type of `asmtune.store.trace.run` from JSON values.

    Raises:
        InputError: it is not of that type; says where, and which field.
    """
    return _CODEC.read(kind, value, where)


def _timed(value: Any, where: str) -> TimedRow:
    if not isinstance(value, dict):
        raise _expected("an object", where, value)
    config = _config(value.get("config"), f"{where}, config")
    if "failure" in value:
        return TimedRow(config, decoded(Failure, value["failure"], f"{where}, failure"))
    return TimedRow(config, decoded(Timing, value, where))


def _config(value: Any, where: str) -> Config:
    if not isinstance(value, dict):
        raise _expected("an object", where, value)
    for name, item in value.items():
        if isinstance(item, dict | list):
            raise _expected("a number, a text, true, false or null", f"{where}, {name}", item)
        if name in OPTION_DEFAULTS and (type(item) is not int or item < 0):
            raise _expected("a whole number", f"{where}, {name}", item)
        if name == "ir_override" and not isinstance(item, str):
            raise _expected("a file's name", f"{where}, {name}", item)
    return Config.from_dict(value)


def _number(value: Any, where: str) -> float:
    if type(value) not in (int, float):
        raise _expected("a number", where, value)
    try:
        number = float(value)
    except OverflowError:  # whole numbers of JSON have no limit
        number = math.inf
    if not math.isfinite(number):
        raise _expected("a finite number", where, value)
    return number


def _exactly(kind: type, words: str) -> Decoder:
    def check(value: Any, where: str) -> Any:
        if type(value) is not kind:
            raise _expected(words, where, value)
        return value

    return check


def _check_time(name: str, value: Any, where: str) -> None:
    if name.endswith("_us") and value is not None and value <= 0:
        raise _expected("a time above 0", where, value)


def _expected(what: str, where: str, value: Any) -> InputError:
    text = "nothing" if value is None else json.dumps(value)
    return InputError(f"{where}: expected {what}, found {shortened(text)}")


_CODEC: Final = JsonCodec(
    decoders={
        float: _number,
        int: _exactly(int, "a whole number"),
        bool: _exactly(bool, "true or false"),
        str: _exactly(str, "a text"),
        Config: _config,
        TimedRow: _timed,
    },
    error=_expected,
    separator=", ",
    exact=False,
    check=_check_time,
)
