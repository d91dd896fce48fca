"""`KeyFile`: the keys that a program has met, as JSON lines that several processes add to."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from asmtune.base.atomic_write import folder_lock, write_whole
from asmtune.base.errors import InputError
from asmtune.base.json_codec import (
    JsonCodec,
    fields_of,
    parse_json,
    printable,
    shown,
    text_of,
    to_json,
)
from asmtune.base.limited_read import read_limited
from asmtune.core.keys.rules import BucketRule
from asmtune.core.records.tuned import TuneKey
from asmtune.store.codec import key_digest

FORMAT: Final = "asmtune-keys"
VERSION: Final = 2
MOST_ELEMENTS: Final = 1 << 16
"""Elements that are kept of an integer tensor; a larger one is filled with repeats of these."""
_AGAIN: Final = "write it anew with `asmtune run --record FILE PROGRAM`"


@dataclass(frozen=True)
class RecordedKey:
    """The first launch of a key.

    Attributes:
        kernel: its name in the store.
        module, file: the module whose names hold the autotuner, and its file, if it has one.
        source, space: digests of the kernel's source and of its configs.
        shape, dtypes, device: the rest of its `TuneKey`.
        positional: names of the arguments that were given by position.
        arguments: by name: values, and tensors by dtype, shape, strides and place in `memory`.
        memory: the ranges of bytes under the tensors: device, first address below 512, size.
        contents: elements of integer tensors, which steer a kernel, by the argument's name.
        grid: sizes, or by the values of a config that the grid's function reads; see `launches`.
        problem: why it cannot be launched again; "" if it can.
    """

    kernel: str
    module: str
    file: str | None
    shape: Mapping[str, Any]
    dtypes: Mapping[str, str]
    device: str
    source: str
    space: str
    positional: tuple[str, ...] = ()
    arguments: Mapping[str, Any] | None = None
    memory: tuple[Any, ...] = ()
    contents: Mapping[str, Any] | None = None
    grid: Any = None
    problem: str = ""

    @property
    def key(self) -> TuneKey:
        """Return the key as the store knows it."""
        return TuneKey(self.kernel, self.shape, self.dtypes, self.device)

    @property
    def digest(self) -> str:
        """Return the key's identity in a file."""
        return device_free(self.key)


def device_free(key: TuneKey) -> str:
    """Return a key's identity, which is the same on every GPU."""
    return key_digest(replace(key, device=""))


@dataclass(frozen=True)
class KeyFile:
    """The content of a file of keys: the program's name, its rules of buckets, and the keys."""

    program: str
    buckets: tuple[str, ...] = ()
    keys: tuple[RecordedKey, ...] = ()

    def to_bytes(self) -> bytes:
        """Return its JSON lines: one that says what it is, and one for each key."""
        head = {"format": FORMAT, "version": VERSION}
        head |= {"program": self.program, "buckets": self.buckets}
        return f"{json.dumps(head)}\n".encode() + _lines(self.keys)


def _lines(keys: Iterable[RecordedKey]) -> bytes:
    return "".join(f"{json.dumps(to_json(key))}\n" for key in keys).encode()


def _line_of(value: Any, where: str) -> str:
    """Check for text, and escape what would break a message into lines."""
    return printable(text_of(value, where))


_CODEC: Final = JsonCodec(decoders={str: _line_of})


def read_key_file(path: Path) -> KeyFile:
    """Read a file of keys; of each key the first launch that can be made again.

    Raises:
        InputError: it is missing, cut off, another kind of file or of a newer asmtune, or a
            field is wrong; says what to do.
    """
    try:
        lines = read_limited(path).splitlines()
    except OSError as error:
        raise InputError(f"keys {path}: {error.strerror}; {_AGAIN}") from error
    try:
        head, *rows = [parse_json(line) for line in lines] or [None]
    except ValueError as error:
        cause = " ".join(str(error).split())
        raise InputError(f"keys {path}: cut off or damaged ({cause}); {_AGAIN}") from error
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise InputError(f"keys {path}: no file of recorded keys; {_AGAIN}")
    if head.get("version") != VERSION:
        raise InputError(
            f"keys {path}: version {shown(head.get('version'))} of the format, and this asmtune "
            f"reads {VERSION}: update asmtune, or {_AGAIN}"
        )
    fields_of(head, f"keys {path}", ("format", "version", "program", "buckets"))
    own = {"program": head["program"], "buckets": head["buckets"], "keys": rows}
    file: KeyFile = _CODEC.read(KeyFile, own, f"keys {path}")
    for rule in file.buckets:
        BucketRule.parse(rule)
    return replace(file, keys=_merged(file.keys))


def _merged(keys: Iterable[RecordedKey]) -> tuple[RecordedKey, ...]:
    """Return one launch of each key, the first that can be launched again."""
    merged: dict[str, RecordedKey] = {}
    for key in keys:
        if key.digest not in merged or merged[key.digest].problem:
            merged[key.digest] = key
    return tuple(merged.values())


def check_program(path: Path, program: str) -> KeyFile:
    """Read the file that a program will add its keys to; return an empty one if it is missing.

    Raises:
        InputError: it cannot be read or written, or holds the keys of another program.
    """
    if not path.exists():
        return KeyFile(program)
    file = read_key_file(path)
    if file.program != program:
        raise InputError(
            f"--record {path}: it holds keys of {file.program}, and this program is {program}: "
            "give another file, or delete it first"
        )
    return file


def start_file(path: Path, own: KeyFile) -> tuple[RecordedKey, ...]:
    """Make a file for a program and its rules, or take the one that is there; return its keys.

    Raises:
        InputError: as `check_program`.
        OSError: it cannot be written.
    """
    with folder_lock(path.absolute().parent):
        known = check_program(path, own.program)
        if known.buckets != own.buckets or not path.exists():
            write_whole(path, replace(own, keys=known.keys).to_bytes())
        return known.keys


def add_keys(path: Path, own: KeyFile) -> None:
    """Add keys to a file that other processes add to at the same time.

    Raises:
        OSError: it cannot be written.
    """
    with folder_lock(path.absolute().parent):
        if not path.exists():
            write_whole(path, own.to_bytes())
            return
        with path.open("ab", buffering=0) as file:
            end, lines = file.tell(), _lines(own.keys)
            if file.write(lines) != len(lines):  # the disk is full
                file.truncate(end)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
