"""Reader of traces: whole ones, and those of runs that were killed or go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from asmtune.base.errors import InputError
from asmtune.base.text import shortened
from asmtune.store.trace.json_codec import decoded, decoded_header
from asmtune.store.trace.run import (
    BatchRow,
    CostRow,
    Ending,
    InitialRanking,
    Summary,
    TimedRow,
    TracedRun,
    TrialRow,
)

_T = TypeVar("_T")


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
            values[_VALUES[line.event]] = value
        values["seconds"] = _seconds(line)
    values.update({name: tuple(items) for name, items in lists.items()})
    return replace(run, **values)


def read_summary(path: Path) -> Summary:
    """Read the first and the last line of a trace.

    Raises:
        InputError: it cannot be read, or its first or last line is malformed.
    """
    data = _read(path)
    first, newline, _ = data.partition(b"\n")
    start = _start(path, _line(f"trace {path}, line 1", first) if newline else None)
    last = data[:-1].rpartition(b"\n")[2] if data.endswith(b"\n") else b""
    line = _line(f"trace {path}, last line", last) if last else None
    if line is None or line.event != "end":
        return Summary(path, start.run, start.header, None)
    ending = decoded(Ending, line.values, line.where)
    return Summary(path, start.run, start.header, ending, _seconds(line))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
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


def _seconds(line: _Line) -> float:
    return _field(float, line, "t")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _start(path: Path, line: _Line | None) -> TracedRun:
    if line is None:
        raise InputError(f"trace {path}: it is empty: its run was ended before it began")
    if line.event != "start":
        raise InputError(f"{line.where}: expected the start of a trace that asmtune has written")
    run, header = decoded_header(line.values, line.where)
    return TracedRun(path, run, header)


def _stage(line: _Line) -> tuple[str, float]:
    return _field(str, line, "name"), _field(float, line, "seconds")


def _field(kind: type[_T], line: _Line, name: str) -> _T:
    return decoded(kind, line.values.get(name), f"{line.where}, {name}")


def _record(kind: type[_T]) -> Callable[[_Line], _T]:
    return lambda line: decoded(kind, line.values, line.where)


# An event's value, by event; and the field of `TracedRun` that it goes to.
_EVENTS: Final[Mapping[str, Callable[[_Line], Any]]] = {
    "stage": _stage,
    "ranking": _record(InitialRanking),
    "batch": _record(BatchRow),
    "trial": _record(TrialRow),
    "final": lambda line: _field(tuple[TimedRow, ...], line, "rows"),
    "costs": lambda line: _field(tuple[CostRow, ...], line, "rows"),
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
_VALUES: Final = {"ranking": "ranking", "costs": "costs", "end": "ending"}
