"""Files that a command is to write, looked at before it works for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from asmtune.base.errors import InputError


def check_destinations(
    wanted: Sequence[tuple[str, Path]], read: Mapping[str, Path] | None = None
) -> None:
    """Makes sure that each file can be replaced, and that none takes another's place.

    Args:
        wanted: options with the files that they name.
        read: files that must stay, by what they are called.

    Raises:
        InputError: a file's folder is missing, it is a folder, or it is named twice or read.
    """
    taken = {path.resolve(): what for what, path in (read or {}).items()}
    for option, path in wanted:
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise InputError(
                f"{option} {path}: no such folder, or a folder itself; name a file to write"
            )
        if path.resolve() in taken:
            raise InputError(
                f"{option} {path}: {taken[path.resolve()]} is that file; name another one"
            )
        taken[path.resolve()] = option
