"""Shapes for `asmtune tune`: from options, or from a file of one of four forms."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical
from asmtune.core.inputs.assignments import parse_assignments, parse_value
from asmtune.core.kernel_module import KernelModule, Shape

_FORMS: Final = (
    "a file of shapes is a JSON list of objects (.json), an object a line (.jsonl), CSV with a "
    "header (.csv), or a line such as M=4096,N=4096 each"
)

Placed = tuple[str, dict[str, Any]]
"""A shape, and where it stands, for messages."""

ShapeSource = Mapping[str, Any] | str | Path
"""A shape by name, a text such as "M=4096,N=4096", or the path of a file of shapes."""


def place_shapes(sources: Sequence[ShapeSource]) -> list[Placed]:
    """Reads shapes from mappings, texts and files, in order.

    Raises:
        InputError: a text or a file is malformed; says where.
    """
    if isinstance(sources, Mapping | str | Path):
        sources = (sources,)
    placed: list[Placed] = []
    for source in sources:
        if isinstance(source, Path):
            placed += read_shapes(source)
        elif isinstance(source, str):
            placed.append(("--shape", parse_assignments(source, "--shape")))
        else:
            placed.append((f"shape {dict(source)}", dict(source)))
    return placed


def shapes_of(
    module: KernelModule, options: Sequence[ShapeSource], file: Path | None = None
) -> list[Shape]:
    """Returns the shapes asked for, each once and in order; the module's own if there are none.

    Args:
        module: its dimensions are what a shape must have.
        options: see `place_shapes`.
        file: see `read_shapes`.

    Raises:
        InputError: one is malformed, or lacks a dimension; says where it stands.
    """
    placed = place_shapes(options)
    if file is not None:
        placed += read_shapes(file)
    if not placed:
        if not module.shapes:
            raise InputError(f"kernel {module.name} has no SHAPES: give --shape or --shapes")
        return list(module.shapes)
    checked = [_checked(module, where, shape) for where, shape in placed]
    return list({canonical(shape): shape for shape in checked}.values())


def read_shapes(path: Path) -> list[Placed]:
    """The shapes of a file, with the line of each.

    JSON where it ends in .json, a JSON object a line in .jsonl, CSV with a header in .csv;
    otherwise a line "M=4096,N=4096" each, with empty lines and what follows a # left out.

    Raises:
        InputError: it cannot be read or is of no such form; names file and line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"--shapes {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"--shapes {path}: no text: {error.reason}; {_FORMS}") from error
    readers = {".json": _json, ".jsonl": _json_lines, ".csv": _csv}
    placed = list(readers.get(path.suffix.lower(), _lines)(str(path), text))
    if not placed:
        raise InputError(f"--shapes {path}: it holds no shape; {_FORMS}")
    return placed


def _checked(module: KernelModule, where: str, shape: Mapping[str, Any]) -> Shape:
    merged = next((v for v in shape.values() if isinstance(v, str) and "=" in v), None)
    if merged is not None:
        raise InputError(f"{where}: {merged!r} is no value; write commas between NAME=VALUE")
    try:
        return module.check_shape(shape)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _json(path: str, text: str) -> Iterator[Placed]:
    try:
        shapes = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"--shapes {path}, line {error.lineno}"
        raise InputError(f"{where}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"--shapes {path}: not JSON: {type(error).__name__}") from error
    if not isinstance(shapes, list):
        raise InputError(f"--shapes {path}: expected a list of objects; {_FORMS}")
    for number, shape in enumerate(shapes, 1):
        where = f"--shapes {path}, shape {number}"
        yield where, _mapping(where, shape)


def _json_lines(path: str, text: str) -> Iterator[Placed]:
    for where, line in _numbered(path, text.splitlines()):
        try:
            shape = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: {line[:60]!r} is no JSON object") from error
        yield where, _mapping(where, shape)


def _csv(path: str, text: str) -> Iterator[Placed]:
    reader = csv.reader(io.StringIO(text), skipinitialspace=True)
    header: list[str] | None = None
    try:
        for row in reader:
            where = f"--shapes {path}, line {reader.line_num}"
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if header is None:
                header = cells
                if not all(cells) or len(set(cells)) != len(cells):
                    raise InputError(f"{where}: expected a header of names, each once")
                continue
            if len(cells) != len(header) or not all(cells):
                filled = sum(map(bool, cells))
                raise InputError(f"{where}: {filled} values for {len(header)} columns")
            yield where, dict(zip(header, map(parse_value, cells), strict=True))
    except csv.Error as error:
        raise InputError(f"--shapes {path}, line {reader.line_num}: {error}") from error


def _lines(path: str, text: str) -> Iterator[Placed]:
    lines = (line.partition("#")[0] for line in text.splitlines())
    for where, line in _numbered(path, lines):
        yield where, parse_assignments(line.strip().rstrip(","), where)


def _numbered(path: str, lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Lines that are not empty, with where they stand."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield f"--shapes {path}, line {number}", line


def _mapping(where: str, shape: Any) -> dict[str, Any]:
    if not isinstance(shape, dict) or not shape:
        raise InputError(f'{where}: expected an object such as {{"M": 4096}}')
    for name, value in shape.items():
        if not isinstance(value, int | float | str | bool | None):
            raise InputError(f"{where}: {name} is {json.dumps(value)[:60]}, expected one value")
    return shape
