"""Files that appear whole or stay as they were, and folders of the user alone."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_PATIENCE_S: Final = 20.0  # a file is written in milliseconds
_POLL_S: Final = 0.002
_STREAMS: Final = ("/dev", "/proc")


def write_whole(
    path: Path, data: bytes | Iterable[bytes], *, private: bool = False, durable: bool = True
) -> None:
    """Write a file so that readers see its old content or its new content, never a part.

    A link stays a link; the file that it names is replaced. A device or a pipe is written to:
    moved over /dev/null, as root may, a file would end there what every program writes.

    Args:
        path: the file.
        data: its new content, in one or in parts.
        private: lets the user alone read it. A link in its place is replaced: it may lead to a
            file that another user wants to have overwritten.
        durable: waits until the content is on the disk; not needed where it can be made again.

    Raises:
        OSError: it cannot be written; nothing has changed then, and nothing is left over.
    """
    parts = (data,) if isinstance(data, bytes) else data
    if _is_stream(path):
        with path.open("wb") as stream:
            stream.writelines(parts)
        return
    target = path if private else path.resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        part.unlink(missing_ok=True)  # left by a killed process that had the same ids
        part.touch(mode=0o600 if private else 0o666, exist_ok=False)
        with part.open("wb") as file:
            file.writelines(parts)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        part.replace(target)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def folder_lock(folder: Path, patience_s: float = _PATIENCE_S) -> Iterator[None]:
    """Hold a folder's lock, which leaves no file; where there are no locks, nobody waits.

    Raises:
        OSError: there is no such folder.
        TimeoutError: another process holds the lock for longer than `patience_s`.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            lock_descriptor(descriptor, patience_s, "another process has locked it")
        except OSError as error:  # but for time, a file system without locks
            if isinstance(error, TimeoutError):
                raise
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # for a forked child as well, which has it open
        os.close(descriptor)


def lock_descriptor(descriptor: int, patience_s: float, held: str) -> None:
    """Lock an open file or folder for this process alone.

    Raises:
        TimeoutError: another process holds the lock for longer than `patience_s`, with the text
            `held`.
        OSError: the file system has no locks.
    """
    until = time.monotonic() + patience_s
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError(errno.ETIMEDOUT, held) from None
            time.sleep(_POLL_S)


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents with mode 0700; `mkdir` gives parents the usual one.

    Raises:
        OSError: it cannot be made.
    """
    if folder.is_dir():
        return
    if not folder.parent.exists():
        make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def _is_stream(path: Path) -> bool:
    """Tell devices and pipes from files to replace; /dev/stdout is no file, wherever it leads."""
    return path.exists() and not path.is_dir() and (names_stream(path) or not path.is_file())


def names_stream(path: Path) -> bool:
    """Tell whether a path names what the system or this process has open, as /dev/stdin does."""
    return any(path.absolute().is_relative_to(folder) for folder in _STREAMS)
