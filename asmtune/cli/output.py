"""Results to stdout or to a file; a file appears whole or not at all."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile

from rich.console import Console

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError

_UNLIMITED = 2000  # columns; wider than any table, so that none is folded


def write_note(renderable: object) -> None:
    """Prints a rich renderable to stderr, beside what a program prints to stdout."""
    if sys.stderr.isatty():
        Console(stderr=True).print(renderable)
    else:
        sys.stderr.write(_plain(renderable) + "\n")


def write_result(result: object, output: Path | None = None) -> None:
    """Prints text or a rich renderable, or writes it, or bytes, to a file.

    A table is as wide as the terminal, or as it needs to be where stdout is none.

    Raises:
        InputError: the file cannot be written.
    """
    if output is not None:
        _write(output, result if isinstance(result, str | bytes) else _plain(result))
    elif isinstance(result, bytes):
        _print(result.decode())
    elif sys.stdout.isatty() and not isinstance(result, str):
        Console().print(result)
    else:
        _print(result if isinstance(result, str) else _plain(result))


def _plain(renderable: object) -> str:
    text = io.StringIO()
    Console(file=text, width=_UNLIMITED).print(renderable)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _print(text: str) -> None:
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of a pipe has seen enough; nothing more must reach it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(path: Path, content: str | bytes) -> None:
    data = content if isinstance(content, bytes) else (content.rstrip("\n") + "\n").encode()
    try:
        write_whole(path, data)
    except OSError as error:
        raise InputError(f"--output {path}: {error.strerror}") from error


def check_destinations(
    wanted: Sequence[tuple[str, Path]], read: Mapping[str, Path] | None = None
) -> None:
    """Makes sure that each file of an option can be replaced, and takes no other's place.

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
