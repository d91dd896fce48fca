"""The lines of a trace as JSON, and the reader of traces, also of runs that were killed or go on.

Each field is checked by its type when it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from asmtune.base.errors import InputError
from asmtune.base.json_codec import JsonCodec, expected
from asmtune.base.limited_read import MIB, read_limited
from asmtune.base.text import shortened
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.store.codec import config_from_json
from asmtune.store.trace.run import (
    BatchRow,
    Ending,
    Header,
    InitialRanking,
    TimedRow,
    Timing,
    TracedRun,
    TrialRow,
)

T = TypeVar("T")

FORMAT: Final = "asmtune-trace"
VERSION: Final = 1

_DIGITS: Final = 6  # significant; a timing is known to three


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
    if isinstance(record, int | None):
        return record
    return str(record).replace("\0", "\\0")  # as the store writes what a crashed compiler prints


def decoded(kind: type[T], value: Any, where: str) -> T:
    """Read a value of a type of `asmtune.store.trace.run` from JSON values.

    Raises:
        InputError: it is not of that type; says where, and which field.
    """
    return _CODEC.read(kind, value, where)


def _timed(value: Any, where: str) -> TimedRow:
    if not isinstance(value, dict):
        raise expected("an object", where, value)
    config = config_from_json(value.get("config"), f"{where}.config")
    if "failure" in value:
        return TimedRow(config, decoded(Failure, value["failure"], f"{where}.failure"))
    return TimedRow(config, decoded(Timing, value, where))


def _check_time(name: str, value: Any, where: str) -> None:
    if name.endswith("_us") and value is not None and value <= 0:
        raise expected("a time above 0", where, value)


_CODEC: Final = JsonCodec(
    decoders={Config: config_from_json, TimedRow: _timed}, exact=False, check=_check_time
)


@dataclass(frozen=True)
class _Line:
    where: str
    event: str
    values: Mapping[str, Any]


def read_trace(path: Path) -> TracedRun:
    """Read a whole trace; an incomplete last line, as a kill leaves it, is ignored.

    Raises:
        InputError: it cannot be read, or is malformed; names file, line and field.
    """
    lines = _lines(path, _read(path))
    run = _start(path, next(lines, None))
    lists: dict[str, list[Any]] = {name: [] for name in _LISTS.values()}
    values: dict[str, Any] = {}
    for line in lines:
        if line.event not in _EVENTS:
            raise InputError(f"{line.where}: unknown event {shortened(ascii(line.event), 40)}")
        value = _EVENTS[line.event](line)
        if line.event == "final":
            lists["finals"] += value
        elif line.event in _LISTS:
            lists[_LISTS[line.event]].append(value)
        else:
            values["ending" if line.event == "end" else line.event] = value
        values["seconds"] = _field(float, line, "t")
    values.update({name: tuple(items) for name, items in lists.items()})
    return replace(run, **values)


def read_summary(path: Path) -> TracedRun:
    """Read the first and the last line of a trace; the parts of the run between are empty.

    Raises:
        InputError: it cannot be read, or its first or last line is malformed.
    """
    data = _read(path)
    first, newline, _ = data.partition(b"\n")
    start = _start(path, _line(f"trace {path}, line 1", first) if newline else None)
    last = data[:-1].rpartition(b"\n")[2] if data.endswith(b"\n") else b""
    line = _line(f"trace {path}, last line", last) if last else None
    if line is None or line.event != "end":
        return start
    ending = decoded(Ending, line.values, f"{line.where}, end")
    return replace(start, ending=ending, seconds=_field(float, line, "t"))


def _read(path: Path) -> bytes:
    try:
        return read_limited(path, 1024 * MIB)
    except OSError as error:
        raise InputError(f"trace {path}: {error.strerror}") from error


def _lines(path: Path, data: bytes) -> Iterator[_Line]:
    *whole, rest = data.split(b"\n")
    for number, text in enumerate(whole, 1):
        yield _line(f"trace {path}, line {number}", text)
    if rest:
        try:
            yield _line(f"trace {path}, line {len(whole) + 1}", rest)
        except InputError:
            return  # the process was killed, or the disk was full, while it was written


def _line(where: str, text: bytes) -> _Line:
    try:
        values = json.loads(text.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "nested too deep"
        raise InputError(f"{where}: not JSON: {reason}") from error
    if not isinstance(values, dict) or not isinstance(values.get("event"), str):
        raise InputError(f'{where}: expected an object with an "event"')
    return _Line(where, values["event"], values)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _start(path: Path, line: _Line | None) -> TracedRun:
    if line is None:
        raise InputError(f"trace {path}: it is empty: its run was ended before it began")
    version = line.values.get("version")
    if (line.event, line.values.get("format")) != ("start", FORMAT) or type(version) is not int:
        raise InputError(f"{line.where}: expected the start of a trace that asmtune has written")
    if version > VERSION:
        raise InputError(
            f"{line.where}: written by a newer asmtune (form {version}, this one knows {VERSION}); "
            "upgrade asmtune"
        )
    return TracedRun(
        path, _field(str, line, "run"), decoded(Header, line.values, f"{line.where}, start")
    )


def _field(kind: type[T], line: _Line, name: str) -> T:
    return decoded(kind, line.values.get(name), f"{line.where}, {line.event}.{name}")


def _record(kind: type[T]) -> Callable[[_Line], T]:
    return lambda line: decoded(kind, line.values, f"{line.where}, {line.event}")


# An event's value, by event; and the field of `TracedRun` that it goes to.
_EVENTS: Final[Mapping[str, Callable[[_Line], Any]]] = {
    "stage": lambda line: (_field(str, line, "name"), _field(float, line, "seconds")),
    "ranking": _record(InitialRanking),
    "batch": _record(BatchRow),
    "trial": _record(TrialRow),
    "final": lambda line: _field(tuple[TimedRow, ...], line, "rows"),
    "note": lambda line: _field(str, line, "text"),
    "end": _record(Ending),
}
_LISTS: Final = {
    "stage": "stages",
    "batch": "batches",
    "trial": "trials",
    "final": "finals",
    "note": "notes",
}
