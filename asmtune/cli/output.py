"""Results to stdout or to a file; a file appears whole or not at all."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, Final, TextIO

import typer
from rich.console import Console, ConsoleOptions
from rich.segment import Segment

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError
from asmtune.base.json_codec import printable
from asmtune.report.cells import ReportTable, cell, plain_table
from asmtune.report.documents import csv_parts


class TextForm(StrEnum):
    """Forms of what a command says."""

    TEXT = "text"
    JSON = "json"


class RowForm(StrEnum):
    """Forms of a list."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


TextFormat = Annotated[TextForm, typer.Option("--format", help="text or json.")]
RowFormat = Annotated[RowForm, typer.Option("--format", help="text, json or csv.")]

_UNLIMITED: Final = 100_000
"""Columns where no terminal sets a limit: no table is wider."""


class _Escaped:
    """Shows control codes of a renderable's text in place of sending them to the terminal."""

    def __init__(self, renderable: Any) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._renderable, options):
            yield segment._replace(text=_escaped(segment.text))


def _escaped(text: str) -> str:
    return re.sub(r"[^\n\t]+", lambda run: printable(run[0]), text)


def print_line(text: str, *, err: bool = False) -> None:
    """Print a line to stdout or stderr, with its control codes escaped."""
    print(_escaped(text), file=sys.stderr if err else sys.stdout)


def write_note(renderable: object) -> None:
    """Print a rich renderable to stderr, beside what a program prints to stdout."""
    text = _rendered(renderable, sys.stderr)
    # The stream is the program's own: it may not know how to write the lines of a table.
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    sys.stderr.write(text.encode(encoding, "replace").decode(encoding) + "\n")


def write_result(result: object, output: Path | None = None) -> None:
    """Print a document (text or bytes) or a rich renderable, or write it to a file.

    A table is as wide as the terminal or as COLUMNS says, or else as it needs to be. A document
    is UTF-8 wherever it goes, but on a terminal.

    Raises:
        InputError: the file cannot be written.
    """
    if not isinstance(result, str | bytes):
        shown = _rendered(result, sys.stdout if output is None else None)
        if output is not None:
            _write(output, shown)
        else:
            print(shown)  # noqa: T201
    elif output is not None:
        _write(output, result)
    elif sys.stdout.isatty():
        print_line(result if isinstance(result, str) else result.decode())
    else:
        data = result if isinstance(result, bytes) else result.encode(errors="backslashreplace")
        sys.stdout.flush()
        sys.stdout.buffer.write(data + b"\n")


def _rendered(renderable: object, stream: TextIO | None) -> str:
    """Lay a renderable out as a stream takes it: a terminal, or a pipe or file without colours."""
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    if width == 0 and (stream is None or not stream.isatty()):
        width = _UNLIMITED
    is_file = stream is None
    console = Console(file=stream, width=width or None, force_terminal=False if is_file else None)
    with console.capture() as capture:
        console.print(_Escaped(renderable))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


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


def _checked(path: Path | None) -> Path | None:
    if path is not None:
        check_destinations([("--output", path)])
    return path


Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="A file to write instead of stdout.", callback=_checked),
]


_MOST_IN_TABLE: Final = 1000
"""Rows whose columns are made equally wide: with more, nothing is seen before the last is known."""


def write_rows(
    title: str,
    rows: Iterable[Mapping[str, Any]],
    form: RowForm,
    output: Path | None = None,
    *,
    spare: Sequence[str] = (),
) -> int:
    """Print rows with equal keys, or write them to a file; return how many there were.

    Rows are in memory one at a time, except for a table's: text of more than a thousand is CSV.

    Args:
        title: title of the table.
        rows: values by column.
        form: a table, a JSON array, or CSV with the keys as its first line.
        output: the file; stdout without one.
        spare: columns that a narrow terminal may lack, the least important first.
    """
    left, count = iter(rows), 0
    if form is RowForm.TEXT:
        first = list(islice(left, _MOST_IN_TABLE + 1))
        if len(first) <= _MOST_IN_TABLE:
            if first or output is not None:
                write_result(table_of(title, first, spare) if first else "", output)
            return len(first)
        left = chain(first, left)

    def counted() -> Iterator[Mapping[str, Any]]:
        nonlocal count
        for count, row in enumerate(left, 1):  # noqa: B007 - told when all are written
            yield row

    parts = _json_parts(counted()) if form is RowForm.JSON else csv_parts(counted())
    if output is None:
        sys.stdout.writelines(parts)
    else:
        _write(output, "".join(parts))
    return count


def table_of(
    title: str, rows: Sequence[Mapping[str, Any]], spare: Sequence[str] = ()
) -> ReportTable:
    """Tabulate rows with equal keys, at least one, under their keys."""
    table = plain_table(title, list(rows[0]), left=len(rows[0]), spare=spare)
    for row in rows:
        table.add_row(*map(cell, row.values()))
    return table


def _json_parts(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    count = 0
    for count, row in enumerate(rows, 1):
        yield f"{',' if count > 1 else '['}\n {printable(json.dumps(row))}"
    yield "\n]\n" if count else "[]\n"
