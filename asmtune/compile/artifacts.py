"""Compiled artifacts on disk, by content, within a size limit.

One gzipped JSON file an artifact: nothing in it can execute. A file appears
whole or not at all; a damaged one is deleted and made again.
"""

from __future__ import annotations

import base64
import errno
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from asmtune.errors import StoreError
from asmtune.records import Artifact, Failure

# A crash or a timeout may be the machine's doing: not remembered.
_LASTING: Final = frozenset({"registers", "shared_memory", "ptxas", "compiler", "kernel"})
_SUFFIX: Final = ".json.gz"


class ArtifactCache:
    """Artifacts and lasting failures by digest.

    Args:
        folder: made with mode 0700 when first written to.
        limit_bytes: `trim` deletes the least recently used beyond it.

    Raises:
        StoreError: from any method, where the folder cannot be written.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes

    def prepare(self) -> None:
        """Makes the folder and shows that it can be written, before any work."""
        probe = self.folder / f"probe-{os.getpid()}"
        with _storage_errors(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                probe.write_bytes(b"\0" * 4096)
            finally:
                probe.unlink(missing_ok=True)

    def get(self, digest: str) -> Artifact | Failure | None:
        """What was put under a digest, or None."""
        path = self._path(digest)
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                entry = json.load(file)
            os.utime(path)
            if "failure" in entry:
                return Failure(**entry["failure"])
            return Artifact(**entry | {"cubin": base64.b64decode(entry["cubin"])})
        except FileNotFoundError:
            return None
        except (EOFError, gzip.BadGzipFile, zlib.error, ValueError, TypeError, KeyError):
            path.unlink(missing_ok=True)
            return None
        except OSError as error:
            raise _unusable(self.folder, error) from error

    def put(self, digest: str, outcome: Artifact | Failure) -> None:
        """Keeps an artifact, or a failure that would happen again."""
        if isinstance(outcome, Failure):
            if outcome.kind not in _LASTING:
                return
            entry = {"failure": asdict(outcome)}
        else:
            entry = asdict(outcome) | {"cubin": base64.b64encode(outcome.cubin).decode()}
        data = gzip.compress(json.dumps(entry, default=str).encode(), compresslevel=1)
        path = self._path(digest)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        with _storage_errors(self.folder):
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                part.write_bytes(data)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)

    def trim(self) -> int:
        """Deletes the least recently used entries over the limit; bytes freed."""
        entries = sorted(self._entries(), key=lambda entry: entry[0])
        excess = sum(size for _, size, _ in entries) - self.limit_bytes
        freed = 0
        for _, size, path in entries:
            if freed >= excess:
                break
            path.unlink(missing_ok=True)
            freed += size
        return freed

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        for path in self.folder.glob(f"*/*{_SUFFIX}"):
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            yield stat.st_mtime, stat.st_size, path

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}{_SUFFIX}"


@contextmanager
def _storage_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unusable(folder, error) from error


def _unusable(folder: Path, error: OSError) -> StoreError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "free some space" if full else "make it writable"
    return StoreError(
        f"artifact folder {folder}: {error.strerror or error}; "
        f"{advice}, or set ASMTUNE_CACHE_DIR to another folder"
    )
