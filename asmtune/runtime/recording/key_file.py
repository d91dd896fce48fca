"""`KeyFile`: the keys that a program has met, as JSON that several processes add to."""

from __future__ import annotations

import json
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
VERSION: Final = 1
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
        """Return its JSON, with a line for each key."""
        return b"".join((self.head, self.lines, _TAIL))

    @property
    def head(self) -> bytes:
        """Return the JSON before the keys."""
        head = json.dumps(
            {"format": FORMAT, "version": VERSION, "program": self.program, "buckets": self.buckets}
        )
        return f'{head[:-1]}, "keys": [\n'.encode()

    @property
    def lines(self) -> bytes:
        """Return the JSON of the keys."""
        return ",\n".join(json.dumps(to_json(key)) for key in self.keys).encode()


_TAIL: Final = b"\n]}\n"


def _line_of(value: Any, where: str) -> str:
    """Check for text, and escape what would break a message into lines."""
    return printable(text_of(value, where))


_CODEC: Final = JsonCodec(decoders={str: _line_of})


def read_key_file(path: Path) -> KeyFile:
    """Read a file of keys.

    Raises:
        InputError: there is none, it is cut off, another kind of file or of a newer asmtune, or
            a field is wrong; says what to do.
    """
    try:
        data = read_limited(path)
    except OSError as error:
        raise InputError(f"keys {path}: {error.strerror}; {_AGAIN}") from error
    try:
        content = parse_json(data)
    except ValueError as error:
        cause = " ".join(str(error).split())
        raise InputError(f"keys {path}: cut off or damaged ({cause}); {_AGAIN}") from error
    version = content.get("version") if isinstance(content, dict) else None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"keys {path}: no file of recorded keys; {_AGAIN}")
    if version != VERSION:
        raise InputError(
            f"keys {path}: version {shown(version)} of the format, and this asmtune reads "
            f"{VERSION}: update asmtune, or {_AGAIN}"
        )
    fields_of(content, f"keys {path}", ("format", "version", "program", "buckets", "keys"))
    own = {name: content[name] for name in ("program", "buckets", "keys")}
    file: KeyFile = _CODEC.read(KeyFile, own, f"keys {path}")
    for rule in file.buckets:
        BucketRule.parse(rule)
    return file


def check_program(path: Path, program: str) -> KeyFile:
    """Read the file that a program will add its keys to; return an empty one if there is none.

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


def add_keys(path: Path, own: KeyFile) -> None:
    """Add keys to a file that other processes add to at the same time; it is replaced whole.

    Raises:
        InputError: what the file holds now is no file of keys.
        OSError: it cannot be written.
    """
    global _last
    with folder_lock(path.absolute().parent):
        digests = frozenset(key.digest for key in own.keys)
        last = _last
        if last is not None and last.can_append(path, own, digests):
            data, known = _appended(path, own, is_first=not last.digests), last.digests
        else:
            before = read_key_file(path).keys if path.exists() else ()
            merged = _merged([*before, *own.keys])
            data = replace(own, keys=merged).to_bytes()
            known = frozenset(key.digest for key in merged)
        write_whole(path, data)
        _last = _Written(path, _state(path), own.head, known | digests)


@dataclass(frozen=True)
class _Written:
    """A file as this process wrote it last.

    Keys are appended to it unread while it is the same: reading 2,000 keys takes 0.8 s.
    """

    path: Path
    state: tuple[int, ...]
    head: bytes
    digests: frozenset[str]

    def can_append(self, path: Path, own: KeyFile, digests: frozenset[str]) -> bool:
        """Return whether keys are new to the file, and nobody else has written it."""
        if path != self.path or own.head != self.head or digests & self.digests:
            return False
        return len(digests) == len(own.keys) > 0 and path.exists() and _state(path) == self.state


_last: _Written | None = None


def _state(path: Path) -> tuple[int, ...]:
    state = path.stat()
    return state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size


def _appended(path: Path, own: KeyFile, *, is_first: bool) -> bytes:
    before = path.read_bytes().removesuffix(_TAIL)
    return b"".join((before, b"" if is_first else b",\n", own.lines, _TAIL))


def _merged(keys: Iterable[RecordedKey]) -> tuple[RecordedKey, ...]:
    """Return one launch of each key, the first that can be launched again."""
    merged: dict[str, RecordedKey] = {}
    for key in keys:
        if key.digest not in merged or merged[key.digest].problem:
            merged[key.digest] = key
    return tuple(merged.values())
