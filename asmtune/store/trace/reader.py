"""Reader of traces: whole ones, and those of runs that were killed or go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NoReturn

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


@dataclass(frozen=True)
class _Line:
    where: str
    event: str
    values: Mapping[str, Any]


@dataclass
class _Parts:
    """The lines read so far, collected in lists."""

    run: TracedRun
    stages: list[tuple[str, float]] = field(default_factory=list)
    batches: list[BatchRow] = field(default_factory=list)
    trials: list[TrialRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def whole(self) -> TracedRun:
        return replace(
            self.run,
            stages=tuple(self.stages),
            batches=tuple(self.batches),
            trials=tuple(self.trials),
            notes=tuple(self.notes),
        )


def read_trace(path: Path) -> TracedRun:
    """Read a whole trace; an incomplete last line, as a kill leaves it, is ignored.

    Raises:
        InputError: it cannot be read, or is malformed; names file, line and field.
    """
    lines = _lines(path, _read(path))
    parts = _Parts(_start(path, next(lines, None)))
    for line in lines:
        handler = _HANDLERS.get(line.event)
        if handler is None:
            raise InputError(f"{line.where}: unknown event {_short(line.event)}")
        handler(parts, line)
        parts.run = replace(parts.run, seconds=_seconds(line))
    return parts.whole()


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
    return decoded(float, line.values.get("t"), f"{line.where}, t")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _start(path: Path, line: _Line | None) -> TracedRun:
    if line is None:
        raise InputError(f"trace {path}: it is empty: its run was ended before it began")
    if line.event != "start":
        raise InputError(f"{line.where}: expected the start of a trace that asmtune has written")
    run, header = decoded_header(line.values, line.where)
    return TracedRun(path, run, header)


def _short(text: str) -> str:
    return shortened(ascii(text), 40)


def _stage(parts: _Parts, line: _Line) -> None:
    name = decoded(str, line.values.get("name"), f"{line.where}, name")
    seconds = decoded(float, line.values.get("seconds"), f"{line.where}, seconds")
    parts.stages.append((name, seconds))


def _batch(parts: _Parts, line: _Line) -> None:
    parts.batches.append(decoded(BatchRow, line.values, line.where))


def _trial(parts: _Parts, line: _Line) -> None:
    parts.trials.append(decoded(TrialRow, line.values, line.where))


def _note(parts: _Parts, line: _Line) -> None:
    parts.notes.append(decoded(str, line.values.get("text"), f"{line.where}, text"))


def _ranking(parts: _Parts, line: _Line) -> None:
    parts.run = replace(parts.run, ranking=decoded(InitialRanking, line.values, line.where))


def _final(parts: _Parts, line: _Line) -> None:
    rows = decoded(tuple[TimedRow, ...], line.values.get("rows"), f"{line.where}, rows")
    parts.run = replace(parts.run, finals=(*parts.run.finals, *rows))


def _costs(parts: _Parts, line: _Line) -> None:
    rows = decoded(tuple[CostRow, ...], line.values.get("rows"), f"{line.where}, rows")
    parts.run = replace(parts.run, costs=rows)


def _end(parts: _Parts, line: _Line) -> None:
    parts.run = replace(parts.run, ending=decoded(Ending, line.values, line.where))


_HANDLERS: Final[Mapping[str, Callable[[_Parts, _Line], None]]] = {
    "stage": _stage,
    "ranking": _ranking,
    "batch": _batch,
    "trial": _trial,
    "final": _final,
    "costs": _costs,
    "note": _note,
    "end": _end,
}
