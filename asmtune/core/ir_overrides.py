"""Files of hand-edited IR that configs name by `ir_override`, copied under their content's digest.

A path does not change when the file does: Triton's own cache mistakes an edited file for the one
before the edit. Here a file is copied under a name with a digest of its content, and the config
names the copy: an edit makes another config, for Triton as well as for the store.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError, StoreError
from asmtune.base.fingerprint import digest
from asmtune.base.limited_read import read_limited_text
from asmtune.base.trust import (
    UntrustedError,
    fault_line,
    private_folder,
    trusted_file,
    trusted_folder,
)
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.space import Space

STAGES: Final = ("ttir", "ttgir", "llir", "ptx")
"""Compiler stages, in order, whose output a file can replace; its suffix names the stage."""

_ERROR: Final = re.compile(r"\): error: ")
# Errors of ptxas and of MLIR's parser, which read a copy: line numbers are the file's.
_PLACE: Final = re.compile(
    r'(?:ptxas[\w-]* \S+, line (\d+); |loc\("[^"]*/kernel\.ttir":(\d+):\d+\): )error\s*: (.*)'
)
_DIGITS: Final = 16
_MOST_STEM: Final = 80


@dataclass(frozen=True)
class Override:
    """A file of hand-edited IR.

    Attributes:
        name: of the file, for messages.
        stage: the stage whose output it replaces: one of `STAGES`.
        text: its content.
    """

    name: str
    stage: str
    text: str

    @classmethod
    def read(cls, path: str) -> Override:
        """Read the file at a path.

        Raises:
            InputError: it cannot be read, is empty, or its suffix names no stage.
        """
        file = Path(path)
        stage = file.suffix.removeprefix(".")
        if stage not in STAGES:
            listed = ", ".join(f".{known}" for known in STAGES)
            raise InputError(f"ir_override={path!r}: give a file that ends in one of {listed}")
        try:
            text = read_limited_text(file)
        except OSError as error:
            cause = (error.strerror or "unreadable").lower()
            raise InputError(f"ir_override={path!r}: {cause}; give the path of the file") from error
        except UnicodeDecodeError as error:
            raise InputError(f"ir_override={path!r}: not a text; give {stage} as text") from error
        if not text.strip():
            raise InputError(f"ir_override={path!r}: the file is empty; give {stage} as text")
        return cls(file.name, stage, text)

    def failed(self, failure: Failure) -> Failure:
        """Put a first line before a compiler's failure that says what is wrong in this file."""
        lines = failure.detail.strip().splitlines() or [""]
        placed = next((match for line in lines if (match := _PLACE.match(line))), None)
        if placed is not None:
            cause = f"line {placed[1] or placed[2]}: {placed[3]}"
        else:
            cause = next((line for line in lines if _ERROR.search(line)), lines[0]).strip()
        rest = [line for line in lines if line.strip() != cause]
        return replace(failure, detail="\n".join([f"ir_override={self.name}: {cause}", *rest]))

    @property
    def content_name(self) -> str:
        """Return the file's name with a digest of its content, which a copy's name has already."""
        stem = self.name.removesuffix(f".{self.stage}")
        mark = f".{digest(self.text)[:_DIGITS]}"
        return f"{stem.removesuffix(mark)[:_MOST_STEM]}{mark}.{self.stage}"


def described(config: Config) -> dict[str, Any]:
    """Return `config.to_dict()`, with the content's digest in the name of a readable file."""
    values = config.to_dict()
    if config.ir_override is not None:
        with contextlib.suppress(InputError):
            values["ir_override"] = Override.read(config.ir_override).content_name
    return values


def pinned(config: Config, folder: Path) -> Config:
    """Return the config with a copy of its file, so that later edits do not affect it.

    An unusable file stays as it is: the compiler's front end reports it. `folder` holds the
    copies; it is created with mode 0700 on the first write.

    Raises:
        StoreError: the copy cannot be written.
    """
    if config.ir_override is None:
        return config
    try:
        override = Override.read(config.ir_override)
    except InputError:
        return config
    return config.with_override(str(_copied(override, folder)))


def pinned_space(space: Space, folder: Path) -> Space:
    """Return the space with copies of its configs' files, and a default without a file.

    All outputs are compared with the default's, so the default must be unedited code. It stays
    as it is if every config has a file. A space without files is returned as it is.

    Raises:
        StoreError: a copy cannot be written.
    """
    listed = space.listed
    if all(config.ir_override is None for config in listed):
        return space
    default = space.default
    if default is None or default.ir_override is not None:
        plain = [config for config in listed if config.ir_override is None]
        default = (plain or [default or listed[0]])[0]
    configs = [pinned(config, folder) for config in listed]
    return _like(space, Space.from_configs(configs, pinned(default, folder)))


def unedited(space: Space) -> Space:
    """Remove configs that name files, for launches without an output check, unless all do."""
    plain = [config for config in space.listed if config.ir_override is None]
    if not plain or len(plain) == len(space.listed):
        return space
    default = space.default if space.default in plain else plain[0]
    return _like(space, Space.from_configs(plain, default))


def _like(space: Space, result: Space) -> Space:
    for constraint in space.constraints:
        result = result.where(constraint.name, constraint.predicate)
    return result


def _copied(override: Override, folder: Path) -> Path:
    try:
        return _copied_to(folder, override)
    except UntrustedError as error:
        return _copied_to(private_folder(folder, "folder of copies", str(error)), override)
    except OSError as error:
        copies = f"ir_override={override.name}: folder of copies"
        raise StoreError(fault_line(copies, folder, error)) from error


def _copied_to(folder: Path, override: Override) -> Path:
    path = (folder / override.content_name).absolute()
    trusted_folder(folder, make=True)
    with contextlib.suppress(FileNotFoundError, UntrustedError):  # a planted copy is replaced
        trusted_file(path)
        if path.read_text() == override.text:
            return path
    write_whole(path, override.text.encode(), private=True)
    return path
