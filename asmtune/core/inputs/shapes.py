"""NAME=VALUE options, and shapes from options or from a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from asmtune.base.errors import InputError
from asmtune.base.fingerprint import canonical
from asmtune.base.limited_read import read_limited_text
from asmtune.core.dtypes import canonical_dtype
from asmtune.core.kernel_module import KernelModule, Shape

T = TypeVar("T")


def parse_assignments(text: str, option: str) -> dict[str, Any]:
    """Parse "M=4096,causal=true" to a mapping.

    Raises:
        InputError: a part is not NAME=VALUE; shows it.
    """
    return unique(option, (_assignment(part, option) for part in text.split(",")))


def unique(option: str, pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Convert pairs to a mapping.

    Raises:
        InputError: a name is given twice.
    """
    values: dict[str, T] = {}
    for name, value in pairs:
        if name in values:
            raise InputError(f"{option}: {name} is given twice")
        values[name] = value
    return values


def _assignment(part: str, option: str) -> tuple[str, Any]:
    name, value = named_text(part, option)
    return name, parse_value(value)


def named_text(part: str, option: str = "--arg") -> tuple[str, str]:
    """Split "x=fp16[n]" into a name and a text.

    Raises:
        InputError: it has another form.
    """
    name, equals, value = (text.strip() for text in part.partition("="))
    if not equals or not name or not value:
        raise InputError(f"{option}: {part!r} is not NAME=VALUE")
    return name, value


def parse_value(text: str) -> Any:
    """Parse a number, true, false or none; return other text as it is."""
    constants: dict[str, Any] = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return constants[text.lower()]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def parse_axis(text: str) -> tuple[str, list[Any]]:
    """Parse "BLOCK=128,256" to a name and its values.

    Raises:
        InputError: it has another form.
    """
    name, equals, values = text.partition("=")
    parts = [value.strip() for value in values.split(",")]
    if not equals or not name.strip() or not all(parts):
        raise InputError(f"--axis: {text!r} is not NAME=VALUE,VALUE,...")
    return name.strip(), [parse_value(part) for part in parts]


_FORM: Final = "a file of shapes has a line such as M=4096,N=4096 each"

Placed = tuple[str, dict[str, Any]]
"""Place where a shape was given, for messages, and the shape."""

ShapeSource = Mapping[str, Any] | str | Path
"""A shape by name, a text such as "M=4096,N=4096", or the path of a file of shapes."""


def place_shapes(sources: Sequence[ShapeSource]) -> list[Placed]:
    """Read shapes from mappings, texts and files, in order.

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


def check_inputs(shapes: Sequence[ShapeSource], dtype: str | None) -> None:
    """Check the form of shapes and the name of a dtype, before any kernel is imported.

    Raises:
        InputError: a text or a file is malformed, or there is no such dtype.
    """
    place_shapes(shapes)
    if dtype is not None:
        canonical_dtype(dtype)


def shapes_of(module: KernelModule, sources: Sequence[ShapeSource]) -> list[Shape]:
    """Return the shapes asked for, each once and in order; without any the module's own.

    Raises:
        InputError: one is malformed, or lacks a dimension of the module; says where.
    """
    placed = place_shapes(sources)
    if not placed:
        if not module.shapes:
            raise InputError(f"kernel {module.name} has no SHAPES: give --shape or --shapes")
        return list(module.shapes)
    checked = [_checked(module, where, shape) for where, shape in placed]
    return list({canonical(shape): shape for shape in checked}.values())


def read_shapes(path: Path) -> list[Placed]:
    """Read the shapes of a file, with the line of each.

    A shape is written as "M=4096,N=4096". There may be empty lines, and comments after #.

    Raises:
        InputError: it cannot be read or has another form; names file and line.
    """
    try:
        text = read_limited_text(path)
    except OSError as error:
        raise InputError(f"--shapes {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"--shapes {path}: no text: {error.reason}; {_FORM}") from error
    placed = list(_lines(str(path), text))
    if not placed:
        raise InputError(f"--shapes {path}: it holds no shape; {_FORM}")
    return placed


def _checked(module: KernelModule, where: str, shape: Mapping[str, Any]) -> Shape:
    merged = next((v for v in shape.values() if isinstance(v, str) and "=" in v), None)
    if merged is not None:
        raise InputError(f"{where}: {merged!r} is no value; write commas between NAME=VALUE")
    try:
        return module.check_shape(shape)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _lines(path: str, text: str) -> Iterator[Placed]:
    for number, whole in enumerate(text.splitlines(), 1):
        if line := whole.partition("#")[0].strip():
            where = f"--shapes {path}, line {number}"
            yield where, parse_assignments(line.rstrip(","), where)
