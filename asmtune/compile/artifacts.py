"""The cache on disk of what compiling makes, by content, within a size limit.

It holds artifacts, and the TTIR and sketches that another shape or another process would make
again. Each entry is one file of gzipped JSON, so nothing in it can execute. A seal in it (`seals`)
tells files that were swapped or changed, or that another user has made. Files are written
atomically; a damaged one is deleted and made again. If the folder cannot be written, or others
may write in it, a warning says so, and a private folder replaces it until this process ends.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import tempfile
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Self

from asmtune.base.atomic_write import write_whole
from asmtune.base.child import temporary_files
from asmtune.base.errors import InputError, StoreError
from asmtune.base.fingerprint import digest, version_of
from asmtune.base.json_codec import JsonCodec, text_of, time_of
from asmtune.base.settings import Settings
from asmtune.base.trust import (
    UntrustedError,
    fault_line,
    is_news,
    remove_own,
    trusted_file,
    trusted_folder,
)
from asmtune.compile.seals import read_secret, sealed, secret_of, unsealed
from asmtune.core.records.artifacts import Artifact, Failure, Sketch


class ArtifactWarning(UserWarning):
    """Warns that compiled artifacts cannot be stored in their folder; compiling goes on."""


_fallbacks: Final[dict[Path, Path]] = {}
"""Private folders of this process, by the folder that each replaces; deleted when it ends."""

_fallbacks_lock: Final = threading.Lock()


def _add_fallback(folder: Path, error: StoreError) -> None:
    """Make a private folder in the place of one that cannot be written, and warns, once.

    Raises:
        StoreError: no private folder can be made either.
    """
    with _fallbacks_lock:
        if folder in _fallbacks:
            return
        with temporary_files():
            place = Path(tempfile.gettempdir())
        with storage_errors(place):
            private = Path(tempfile.mkdtemp(prefix="asmtune-artifacts-"))
        atexit.register(remove_own, private, os.getpid())
        _prepare(private)
        _fallbacks[folder] = private
    if is_news(folder):
        warnings.warn(
            f"{error}; artifacts are kept in {private} until this process ends",
            ArtifactWarning,
            stacklevel=4,
        )


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turn an `OSError` into one line that names the folder and says what to do.

    Raises:
        StoreError: in the place of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise StoreError(fault_line("artifact folder", folder, error)) from error


_SUFFIX: Final = ".json.gz"

_TRIM_EVERY_S: Final = 600
"""Seconds between trims: each took 0.3 s of a folder with 17,000 entries, at every batch."""


Folders = Sequence[Path]
"""Where to look for an entry; the last one is written to."""


class ArtifactCache:
    """Stores artifacts and lasting failures by digest.

    Args:
        folder: created with mode 0700 at the first write.
        limit_bytes: size that `trim` reduces it to.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the cache of a user's settings."""
        return cls(settings.artifacts_dir, settings.artifacts_bytes)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folder, and the private one that replaces it if it cannot be written."""
        folder, private = self.folder.absolute(), _fallbacks.get(self.folder)
        return (folder,) if private is None else (folder, private)

    def prepare(self) -> Folders:
        """Check before any work that artifacts can be written, and return where.

        If the folder cannot be written, warns once and uses a private one.

        Raises:
            StoreError: neither can be written.
        """
        try:
            _prepare(self.folders[-1])
        except StoreError as error:
            if len(self.folders) > 1:
                raise
            _add_fallback(self.folder, error)
        return self.folders

    def get(self, digest: str) -> Artifact | Failure | None:
        """Return the entry of a digest, or None."""
        return read_artifact(self.folders, digest)

    def put(self, digest: str, outcome: Artifact | Failure) -> None:
        """Store an artifact, or a failure that would happen again, here or in the private folder.

        Raises:
            StoreError: neither can be written.
        """
        try:
            write_artifact(self.folders, digest, outcome)
        except StoreError as error:
            if len(self.folders) > 1:
                raise
            _add_fallback(self.folder, error)
            write_artifact(self.folders, digest, outcome)

    def trim_at_times(self) -> None:
        """Trim, unless a process did within `_TRIM_EVERY_S`; many entries take long to list."""
        marker = self.folders[-1] / "trimmed"
        with contextlib.suppress(OSError):
            trusted_folder(marker.parent)
            if marker.exists() and abs(time.time() - marker.stat().st_mtime) < _TRIM_EVERY_S:
                return
            marker.touch()
        self.trim()

    def trim(self) -> int:
        """Delete the least recently used entries over the limit; return the bytes freed."""
        entries = sorted(self._entries(), key=lambda entry: entry[0])
        excess = sum(size for _, size, _ in entries) - self.limit_bytes
        freed = 0
        for _, size, path in entries:
            if freed >= excess:
                break
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                freed += size
        return freed

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Yield each entry's last use, size and path; usually at most 40,000 of 50 kB."""
        folder = self.folders[-1]
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError, UntrustedError),
            os.scandir(folder) as groups,
        ):
            trusted_folder(folder)
            for group in [entry.path for entry in groups if entry.is_dir()]:
                with contextlib.suppress(OSError), os.scandir(group) as files:
                    for file in files:
                        if file.name.endswith(_SUFFIX):
                            stat = file.stat()
                            yield stat.st_mtime, stat.st_size, Path(file.path)


def _prepare(folder: Path) -> None:
    """Make a folder and its secret, and show that it can be written."""
    probe = folder / f"probe-{os.getpid()}-{threading.get_ident()}"
    with storage_errors(folder):
        trusted_folder(folder, make=True)
        try:
            probe.write_bytes(b"\0" * 4096)
            secret_of(folder)
        finally:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)


def entry_path(folder: Path, key: str, kind: str = "") -> Path:
    """Return the file of a key's artifact, or of its entry of another kind, such as `.ttir`."""
    return folder / key[:2] / f"{key}{kind}{_SUFFIX}"


def _read(folders: Folders, key: str, kind: str = "") -> Any:
    """Return an entry from the first folder that has it, or None; delete a damaged one."""
    for folder in folders:
        path = entry_path(folder, key, kind)
        # A folder that cannot be read has nothing, and one that others may write in neither.
        with contextlib.suppress(OSError):
            trusted_file(path)
            data, secret = path.read_bytes(), read_secret(folder)
            if secret is None:
                continue
            if (entry := unsealed(key, data, secret)) is None:
                path.unlink(missing_ok=True)
                continue
            with contextlib.suppress(OSError):  # one that is read-only can still be read
                os.utime(path)
            return entry
    return None


def _write(folders: Folders, key: str, entry: Any, kind: str = "") -> None:
    """Write an entry to the last folder under that one's own seal, whole or not at all.

    Raises:
        StoreError: the folder cannot be written.
    """
    folder = folders[-1]
    path = entry_path(folder, key, kind)
    with storage_errors(folder):
        trusted_folder(path.parent, make=True)
        data = sealed(key, entry, secret_of(folder))
        write_whole(path, data, private=True, durable=False)  # what is lost is compiled again


# A crash or a timeout may be caused by the machine, so it is not stored.
_LASTING_KINDS: Final = frozenset(
    {"registers", "shared_memory", "ptxas", "compiler", "kernel", "override"}
)


def read_artifact(folders: Folders, digest: str) -> Artifact | Failure | None:
    """Return the artifact or the lasting failure of a digest, or None."""
    entry = _read(folders, digest)
    try:
        if "failure" in entry:
            return _CODEC.read(Failure, entry["failure"], "failure")
        return _CODEC.read(Artifact, entry, "artifact")
    except (ValueError, TypeError, InputError):
        return None


def write_artifact(folders: Folders, digest: str, outcome: Artifact | Failure) -> None:
    """Store an artifact, or a failure that would happen again.

    Raises:
        StoreError: the folder cannot be written.
    """
    if isinstance(outcome, Artifact):
        cubin = base64.b64encode(outcome.cubin).decode()
        _write(folders, digest, asdict(outcome) | {"cubin": cubin})
    elif outcome.kind in _LASTING_KINDS:
        _write(folders, digest, {"failure": asdict(outcome)})


def read_sketch(folders: Folders, artifact: str) -> Sketch | None:
    """Return the stored sketch in the place of the artifact of a digest, or None."""
    entry = _read(folders, _sketch_key(artifact), ".sketch")
    try:
        sketch = _CODEC.read(Sketch, entry, "sketch")
    except (InputError, TypeError, ValueError):
        return None
    return sketch if sketch.digest == artifact else None


def write_sketch(folders: Folders, sketch: Sketch) -> None:
    """Store a sketch, if a folder can be written: what is lost is made again."""
    with contextlib.suppress(StoreError):
        _write(folders, _sketch_key(sketch.digest), asdict(sketch), ".sketch")


def _sketch_key(artifact: str) -> str:
    return digest("sketch", artifact, version_of("asmtune"))


_MOST_TEXTS: Final = 512
"""TTIR texts kept in the process: 20 to 30 kB each."""

_texts: Final[OrderedDict[str, str]] = OrderedDict()
_texts_lock: Final = threading.Lock()


class StoredTtir:
    """Keeps TTIR by a digest of all that it is made from: in this process, and on disk."""

    def __init__(self, cache: ArtifactCache) -> None:
        self._cache = cache

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        with _texts_lock:
            if key in _texts:
                _texts.move_to_end(key)
                return _texts[key]
        entry = _read(self._cache.folders, key, ".ttir")
        if not isinstance(entry, str):
            return None
        self._keep(key, entry)
        return entry

    def put(self, key: str, ttir: str) -> None:
        """Store a text; where the folder cannot be written, for this process alone."""
        self._keep(key, ttir)
        with contextlib.suppress(StoreError):
            _write(self._cache.folders, key, ttir, ".ttir")

    def _keep(self, key: str, ttir: str) -> None:
        with _texts_lock:
            _texts[key] = ttir
            while len(_texts) > _MOST_TEXTS:
                _texts.popitem(last=False)


def _cubin(value: Any, where: str) -> bytes:
    return base64.b64decode(text_of(value, where), validate=True)


_CODEC: Final = JsonCodec(decoders={str: text_of, float: time_of, bytes: _cubin})
