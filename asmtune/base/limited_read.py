"""Bounded reads of the files that a user names, which may be any file of the machine."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import zlib
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Final, cast

from asmtune.base.atomic_write import names_stream

MIB: Final = 1 << 20


def read_limited(path: Path, most: int = 64 * MIB) -> bytes:
    """Read a regular file, or a pipe that this process has open as /dev/stdin.

    A device may have no end, and a pipe elsewhere may have no writer to wait for.

    Raises:
        OSError: it cannot be read, is another kind of file, or holds more than `most` bytes.
    """
    status = _checked(path)
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        held = max(len(data), status.st_size)
        cause = f"too large: {held:,} bytes, and at most {most:,} are read"
        raise OSError(errno.EFBIG, cause, os.fspath(path))
    return data


def open_regular(path: Path, most: int) -> BinaryIO:
    """Open a regular file of any size, to be read in parts.

    A pipe, or stdin where the path is -, is copied to the disk first, at most `most` bytes.

    Raises:
        OSError: as `read_limited`.
    """
    if str(path) == "-":
        # Not as /dev/stdin, which cannot be opened where it is a socket, as it is under sshd.
        with open(0, "rb", closefd=False) as stream:
            return _copied(stream, path, most)
    if stat.S_ISFIFO(_checked(path).st_mode):
        with path.open("rb") as stream:
            return _copied(stream, path, most)
    return path.open("rb")


def _copied(stream: BinaryIO, path: Path, most: int) -> BinaryIO:
    with ExitStack() as undo:
        copy = undo.enter_context(TemporaryFile())
        while part := stream.read(MIB):
            if copy.tell() + len(part) > most:
                cause = f"too large: more than {most:,} bytes"
                raise OSError(errno.EFBIG, cause, os.fspath(path))
            copy.write(part)
        copy.seek(0)
        undo.pop_all()
    return cast(BinaryIO, copy)


def _checked(path: Path) -> os.stat_result:
    status = path.stat()
    if not (
        stat.S_ISREG(status.st_mode)
        or stat.S_ISDIR(status.st_mode)
        or (stat.S_ISFIFO(status.st_mode) and names_stream(path))
    ):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return status


def read_limited_text(path: Path, most: int = 64 * MIB) -> str:
    """Read the text of a file as `read_limited`; a byte order mark is left out.

    Raises:
        OSError: as `read_limited`.
        UnicodeDecodeError: it is not UTF-8.
    """
    return io.TextIOWrapper(io.BytesIO(read_limited(path, most)), encoding="utf-8-sig").read()


def unzipped(data: bytes, most: int) -> bytes:
    """Decompress a gzip file's content up to a limit: a thousandth of it may lie on the disk.

    Raises:
        OSError: it holds more than `most` bytes, or is no gzip (`gzip.BadGzipFile`).
        EOFError: it is cut off.
        zlib.error: it is damaged.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"too large: at most {most:,} bytes are decompressed")
    return content


def inflated(data: bytes, most: int) -> bytes:
    """Decompress zlib's form up to a limit.

    Raises:
        ValueError: it holds more than `most` bytes, or is cut off.
        zlib.error: it is damaged.
    """
    stream = zlib.decompressobj()
    content = stream.decompress(data, most + 1)
    if len(content) > most:
        raise ValueError(f"too large: at most {most:,} bytes are decompressed")
    if not stream.eof:
        raise ValueError("cut off")
    return content
