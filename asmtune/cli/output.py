"""Results to stdout or to a file; a file appears whole or not at all."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, TextIO

from rich.console import Console, ConsoleOptions
from rich.segment import Segment

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError
from asmtune.base.json_codec import printable
from asmtune.cli.streams import FALLBACK
from asmtune.report.cells import spreadsheet_text, words
from asmtune.report.tables import mapping_table

_UNLIMITED: Final = 100_000
"""Columns where no terminal sets a limit: no table is wider."""

_TERMINAL: Final = 80
"""Columns of a terminal that does not tell its width."""


class _Escaped:
    """Shows control codes of a renderable's text in place of sending them to the terminal."""

    def __init__(self, renderable: Any) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._renderable, options):
            yield segment._replace(text=_escaped(segment.text))


def _escaped(text: str) -> str:
    return re.sub(r"[^\n\t]+", lambda run: printable(run[0]), text)


def is_terminal() -> bool:
    """Tell if stdout is a terminal, or FORCE_COLOR says so."""
    return Console(file=sys.stdout).is_terminal


def print_line(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print a line to stdout or stderr, with its control codes escaped."""
    print(_escaped(text), file=sys.stderr if err else sys.stdout, end=end)


def write_note(renderable: object) -> None:
    """Print a rich renderable to stderr, beside what a program prints to stdout."""
    if sys.stderr.isatty():
        _console(sys.stderr).print(_Escaped(renderable))
        return
    # The stream is the program's own: it may not know how to write the lines of a table.
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    sys.stderr.write(_plain(renderable).encode(encoding, FALLBACK).decode(encoding) + "\n")


def write_result(result: object, output: Path | None = None) -> None:
    """Print a document (text or bytes) or a rich renderable, or write it to a file.

    A table is as wide as the terminal or as COLUMNS says, or else as it needs to be. A document
    is UTF-8 wherever it goes, but on a terminal.

    Raises:
        InputError: the file cannot be written.
    """
    if not isinstance(result, str | bytes):
        if output is None and is_terminal():
            _console(sys.stdout).print(_Escaped(result))
            return
        result = _plain(result)
        if output is None:
            print_line(result)
            return
    if output is not None:
        _write(output, result)
    elif sys.stdout.isatty():
        print_line(result if isinstance(result, str) else result.decode())
    else:
        _print_document(result)


def _console(stream: TextIO) -> Console:
    return Console(file=stream, width=_width(stream))


def _width(stream: TextIO | None) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    if stream is None or not stream.isatty():
        return _UNLIMITED
    try:
        return os.get_terminal_size(stream.fileno()).columns or _TERMINAL
    except OSError:
        return _TERMINAL


def _plain(renderable: object) -> str:
    text = io.StringIO()
    Console(file=text, width=_width(None), force_terminal=False, color_system=None).print(
        _Escaped(renderable)
    )
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _print_document(document: str | bytes) -> None:
    data = document if isinstance(document, bytes) else document.encode(errors="backslashreplace")
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.flush()


def _write(path: Path, content: str | bytes) -> None:
    if isinstance(content, str):
        content = (content.rstrip("\n") + "\n").encode(errors="backslashreplace")
    try:
        write_whole(path, content)
    except OSError as error:
        raise InputError(f"--output {path}: {error.strerror}") from error


def is_stdout(path: Path) -> bool:
    """Tell whether a path names stdout, on which nothing but the data may be then."""
    return str(path) in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def check_destinations(
    wanted: Sequence[tuple[str, Path]], read: Mapping[str, Path] | None = None
) -> None:
    """Make sure that each file of an option can be replaced, and take no other's place.

    Files of `read`, by what they are called, must stay.

    Raises:
        InputError: a file's folder is missing or cannot be written to, it is a folder, or it is
            named twice or read.
    """
    taken = {path.resolve(): what for what, path in (read or {}).items()}
    for option, path in wanted:
        folder = path.absolute().parent
        if path.is_dir() or not folder.is_dir():
            raise InputError(
                f"{option} {path}: no such folder, or a folder itself; name a file to write"
            )
        if path.is_file() or not path.exists():  # a device is written to, a file replaced
            try:
                with TemporaryFile(dir=path.resolve().parent):
                    pass
            except OSError as error:
                raise InputError(f"{option} {path}: {error.strerror}; name another file") from error
        if path.resolve() in taken:
            raise InputError(
                f"{option} {path}: {taken[path.resolve()]} is that file; name another one"
            )
        taken[path.resolve()] = option


_NOTHING: Final = "-"

_MOST_IN_TABLE: Final = 1000
"""Rows whose columns are made equally wide: with more, nothing is seen before the last is known."""


def print_table(rows: Iterable[Mapping[str, Any]], spare: Sequence[str] = ()) -> int:
    """Print a table on a terminal; lines with tabs, header first, in a pipe or of many rows.

    Args:
        rows: values by column, one row at a time in memory.
        spare: columns that a narrow terminal may lack, the least important first.

    Returns:
        How many rows there were.
    """
    left = iter(rows)
    first = list(islice(left, _MOST_IN_TABLE + 1)) if is_terminal() else []
    if 0 < len(first) <= _MOST_IN_TABLE:
        shown = [{name: cell(value) for name, value in row.items()} for row in first]
        write_result(mapping_table("", shown, spare))
        return len(first)
    count = 0
    for count, row in enumerate(chain(first, left), 1):
        if count == 1:
            print_line("\t".join(map(spreadsheet_text, row)))
        texts = [spreadsheet_text(cell(value)) for value in row.values()]
        sys.stdout.write("\t".join(texts) + "\n")
    return count


def print_json_rows(rows: Iterable[Any]) -> None:
    """Print a JSON array, a line a row."""
    count = 0
    for count, row in enumerate(rows, 1):
        sys.stdout.write(f"{',' if count > 1 else '['}\n {printable(json.dumps(row))}")
    print_line("\n]" if count else "[]")


def cell(value: Any) -> str:
    """Format a value on one line."""
    # What a file brought in must not reach the terminal as control codes.
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return words(value)
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list):
        return "; ".join(map(cell, value)) or _NOTHING
    return _NOTHING if value is None else printable(str(value))
