"""Files of hand-edited IR that configs name by `ir_override`, kept by their content.

A path says nothing of what lies there: Triton's own cache takes an edited file for the one
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
from asmtune.core.config import Config
from asmtune.core.records.artifacts import Failure
from asmtune.core.space.space import Space

STAGES: Final = ("ttir", "ttgir", "llir", "ptx")
"""Stages of the compiler, in order, whose output a file may stand for; its suffix tells which."""

_ERROR: Final = re.compile(r"\): error: ")
# Of ptxas and of MLIR's reader, which are given a copy: the line is that of the file.
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
        stage: whose output it stands for: one of `STAGES`.
        text: its content.
    """

    name: str
    stage: str
    text: str

    @classmethod
    def read(cls, path: str) -> Override:
        """The file at a path.

        Raises:
            InputError: it cannot be read, is empty, or is of no stage.
        """
        file = Path(path)
        stage = file.suffix.removeprefix(".")
        if stage not in STAGES:
            listed = ", ".join(f".{known}" for known in STAGES)
            raise InputError(f"ir_override={path!r}: give a file that ends in one of {listed}")
        try:
            text = file.read_text()
        except OSError as error:
            said = (error.strerror or "unreadable").lower()
            raise InputError(f"ir_override={path!r}: {said}; give the path of the file") from error
        except UnicodeDecodeError as error:
            raise InputError(f"ir_override={path!r}: not a text; give {stage} as text") from error
        if not text.strip():
            raise InputError(f"ir_override={path!r}: the file is empty; give {stage} as text")
        return cls(file.name, stage, text)

    def failed(self, failure: Failure) -> Failure:
        """A failure of the compiler, with a first line that says what is wrong in this file."""
        lines = failure.detail.strip().splitlines() or [""]
        placed = next((found for line in lines if (found := _PLACE.match(line))), None)
        if placed is not None:
            said = f"line {placed[1] or placed[2]}: {placed[3]}"
        else:
            said = next((line for line in lines if _ERROR.search(line)), lines[0]).strip()
        rest = [line for line in lines if line.strip() != said]
        return replace(failure, detail="\n".join([f"ir_override={self.name}: {said}", *rest]))

    @property
    def content_name(self) -> str:
        """The file's name with a digest of its content; of a copy its own name."""
        stem = self.name.removesuffix(f".{self.stage}")
        mark = f".{digest(self.text)[:_DIGITS]}"
        return f"{stem.removesuffix(mark)[:_MOST_STEM]}{mark}.{self.stage}"


def described(config: Config) -> dict[str, Any]:
    """A config's values as `to_dict` gives them; a file that can be read by its content."""
    values = config.to_dict()
    if config.ir_override is not None:
        with contextlib.suppress(InputError):
            values["ir_override"] = Override.read(config.ir_override).content_name
    return values


def pinned(config: Config, folder: Path) -> Config:
    """A config that names a copy of its file, which no edit changes any more.

    A file that cannot be used stays as it is: the front end says what is wrong with it.

    Args:
        config: with a file or without.
        folder: of the copies; made with mode 0700 when first written to.

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
    """A space whose configs name copies of their files; its default is one without a file.

    The default's output is what all others must equal: it is to be the compiler's own work.
    Where every config has a file, the default stays.

    Args:
        space: of any configs; one without files is returned as it is.
        folder: see `pinned`.

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
    """A space without configs that name files, for who launches what nobody has checked.

    Where there are no others it stays as it is.
    """
    plain = [config for config in space.listed if config.ir_override is None]
    if not plain or len(plain) == len(space.listed):
        return space
    default = space.default if space.default in plain else plain[0]
    return _like(space, Space.from_configs(plain, default))


def _like(space: Space, made: Space) -> Space:
    """A space with the constraints of another."""
    for constraint in space.constraints:
        made = made.where(constraint.name, constraint.predicate)
    return made


def _copied(override: Override, folder: Path) -> Path:
    """The copy of a file, written whole or not at all."""
    path = (folder / override.content_name).absolute()
    try:
        if path.is_file() and path.read_text() == override.text:
            return path
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, override.text.encode(), private=True)
    except OSError as error:
        said = (error.strerror or "unwritable").lower()
        raise StoreError(
            f"ir_override={override.name}: its copy cannot be kept in {folder} ({said}): "
            "free or change the folder, or set ASMTUNE_CACHE_DIR to another"
        ) from error
    return path
