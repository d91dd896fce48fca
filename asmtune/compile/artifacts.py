"""The cache of compiled artifacts on disk, by content, within a size limit.

Each artifact is one file of gzipped JSON, so nothing in it can execute. A seal in it, a digest of
its key and its content, tells files that were swapped or changed. Files are written atomically; a
damaged one is deleted and made again. If the folder cannot be written, a warning says so, and a
private folder replaces it until this process ends.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import errno
import gzip
import json
import os
import shutil
import tempfile
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from asmtune.base import fingerprint
from asmtune.base.atomic_write import make_private, write_whole
from asmtune.base.child import temporary_files
from asmtune.base.errors import InputError, StoreError
from asmtune.base.json_codec import JsonCodec, expected, parse_json, text_of, time_of
from asmtune.base.settings import Settings
from asmtune.core.records.artifacts import Artifact, Failure


class ArtifactWarning(UserWarning):
    """Warns that compiled artifacts cannot be stored in their folder; compiling goes on."""


_fallbacks: Final[dict[Path, Path]] = {}
"""Private folders of this process, by the folder that each replaces; deleted when it ends."""

_fallbacks_lock: Final = threading.Lock()


def _add_fallback(folder: Path, error: StoreError) -> None:
    """Makes a private folder in the place of one that cannot be written, and warns, once.

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
        atexit.register(_remove, private, os.getpid())
        _prepared(private)
        _fallbacks[folder] = private
    warnings.warn(
        f"{error}; artifacts are kept in {private} until this process ends",
        ArtifactWarning,
        stacklevel=4,
    )


def _remove(folder: Path, owner: int) -> None:
    # A forked process ends as well, but does not own the folder.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turns an `OSError` into one line that names the folder and says what to do.

    Raises:
        StoreError: in the place of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space" if full else "make it writable"
        raise StoreError(
            f"artifact folder {folder}: {error.strerror or error}; "
            f"{advice}, or set ASMTUNE_CACHE_DIR to another folder"
        ) from error


_SUFFIX: Final = ".json.gz"
_TOKEN: Final = "token"
_TOKEN_BYTES: Final = 32


@dataclass(frozen=True)
class ArtifactFolders:
    """Names the folders of artifacts for a worker, maybe on another machine.

    Attributes:
        folders: where to look; the last one is written to.
        token: content of the last one's file `token`, which identifies the folder.
    """

    folders: tuple[Path, ...]
    token: bytes

    @property
    def is_here(self) -> bool:
        """Returns whether this process sees the same folder."""
        with contextlib.suppress(OSError):
            return (self.folders[-1] / _TOKEN).read_bytes() == self.token
        return False


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
        """Returns the cache of a user's settings."""
        return cls(settings.artifacts_dir, settings.artifacts_bytes)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Returns the folder, and the private one that replaces it if it cannot be written."""
        private = _fallbacks.get(self.folder)
        return (self.folder,) if private is None else (self.folder, private)

    def prepare(self) -> ArtifactFolders:
        """Checks before any work that artifacts can be written, and returns where.

        If the folder cannot be written, warns once and uses a private one.

        Raises:
            StoreError: neither can be written.
        """
        if _fallbacks.get(self.folder) is None:
            try:
                return ArtifactFolders((self.folder,), _prepared(self.folder))
            except StoreError as error:
                _add_fallback(self.folder, error)
        folders = self.folders
        return ArtifactFolders(folders, _prepared(folders[-1]))

    def get(self, digest: str) -> Artifact | Failure | None:
        """Returns the entry of a digest, or None.

        Raises:
            StoreError: the folder cannot be read.
        """
        *unwritable, last = self.folders
        for folder in unwritable:
            with contextlib.suppress(StoreError):
                if (outcome := read_artifact(folder, digest)) is not None:
                    return outcome
        return read_artifact(last, digest)

    def put(self, digest: str, outcome: Artifact | Failure) -> None:
        """Stores an artifact, or a failure that would happen again.

        Raises:
            StoreError: the folder cannot be written.
        """
        if (data := encode_artifact(digest, outcome)) is not None:
            write_artifact(self.folders[-1], digest, data)

    def keep(self, digest: str, data: bytes) -> None:
        """Stores an entry that a worker could not write, here or in the private folder.

        Raises:
            StoreError: neither can be written.
        """
        try:
            write_artifact(self.folders[-1], digest, data)
        except StoreError as error:
            if len(self.folders) > 1:
                raise
            _add_fallback(self.folder, error)
            write_artifact(self.prepare().folders[-1], digest, data)

    def raw(self, digest: str) -> bytes | None:
        """Returns the encoded entry of a digest, or None."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                return _path(folder, digest).read_bytes()
        return None

    def trim(self) -> int:
        """Deletes the least recently used entries over the limit; returns the bytes freed."""
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
        """Yields each entry's last use, size and path; usually at most 40,000 of 50 kB."""
        folder = self.folders[-1]
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(folder) as groups,
        ):
            for group in [entry.path for entry in groups if entry.is_dir()]:
                with contextlib.suppress(OSError), os.scandir(group) as files:
                    for file in files:
                        if file.name.endswith(_SUFFIX):
                            stat = file.stat()
                            yield stat.st_mtime, stat.st_size, Path(file.path)

    def _path(self, digest: str) -> Path:
        return _path(self.folder, digest)


def read_artifact(folder: Path, digest: str) -> Artifact | Failure | None:
    """Reads the entry of a digest in one folder, or None; deletes a damaged one.

    Raises:
        StoreError: the folder cannot be read.
    """
    path = _path(folder, digest)
    with storage_errors(folder):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
    outcome = decode_artifact(digest, data)
    # A read-only folder can still be read.
    with contextlib.suppress(OSError):
        if outcome is None:
            path.unlink(missing_ok=True)
        else:
            os.utime(path)
    return outcome


def write_artifact(folder: Path, digest: str, data: bytes) -> None:
    """Writes an encoded entry, whole or not at all.

    Raises:
        StoreError: the folder cannot be written.
    """
    path = _path(folder, digest)
    with storage_errors(folder):
        make_private(path.parent)
        write_whole(path, data, private=True, durable=False)  # what is lost is compiled again


def _path(folder: Path, digest: str) -> Path:
    return folder / digest[:2] / f"{digest}{_SUFFIX}"


def _prepared(folder: Path) -> bytes:
    """Makes a folder, shows that it can be written, and gives its token."""
    probe, token = folder / f"probe-{os.getpid()}-{threading.get_ident()}", folder / _TOKEN
    with storage_errors(folder):
        make_private(folder)
        try:
            probe.write_bytes(b"\0" * 4096)
            if not token.is_file() or token.stat().st_size != _TOKEN_BYTES:
                # If processes begin at once, the last one's token stays. To the others the folder
                # then looks like another machine's, which only costs time.
                probe.write_bytes(os.urandom(_TOKEN_BYTES))
                probe.replace(token)
            return token.read_bytes()
        finally:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)


# A crash or a timeout may be caused by the machine, so it is not stored.
_LASTING_KINDS: Final = frozenset(
    {"registers", "shared_memory", "ptxas", "compiler", "kernel", "override"}
)


def encode_artifact(digest: str, outcome: Artifact | Failure) -> bytes | None:
    """Encodes the outcome of a digest; None for a failure that may not happen again."""
    if isinstance(outcome, Failure):
        if outcome.kind not in _LASTING_KINDS:
            return None
        entry = {"failure": asdict(outcome)}
    else:
        entry = asdict(outcome) | {"cubin": base64.b64encode(outcome.cubin).decode()}
    return sealed(digest, entry)


def sealed(digest: str, entry: Any) -> bytes:
    """Encodes a JSON value so that it is read again only whole, and under this digest."""
    data = gzip.compress(json.dumps(entry, default=str).encode(), compresslevel=1)
    head, body = data[:_HEAD], data[_HEAD:]
    return head[:3] + _HAS_COMMENT + head[4:] + _seal(digest, body) + body


def unsealed(digest: str, data: bytes) -> Any:
    """Decodes what `sealed` encoded; None if the bytes are damaged, or of another digest."""
    body = data[_HEAD + _SEAL :]
    if data[_HEAD : _HEAD + _SEAL] != _seal(digest, body):
        return None
    try:
        return parse_json(gzip.decompress(data))
    except (EOFError, OSError, zlib.error, ValueError, InputError):
        return None


def decode_artifact(digest: str, data: bytes) -> Artifact | Failure | None:
    """Decodes the entry of a digest; None if the bytes are damaged, or of another entry."""
    entry = unsealed(digest, data)
    try:
        if "failure" in entry:
            return _CODEC.read(Failure, entry["failure"], "failure")
        return _CODEC.read(Artifact, entry, "artifact")
    except (ValueError, TypeError, InputError):
        return None


_HEAD: Final = 10  # bytes of gzip's header
_HAS_COMMENT: Final = b"\x10"  # flag of the header: a text that ends with a zero comes next
_SEAL: Final = 65


def _seal(digest: str, body: bytes) -> bytes:
    # It binds the content to the key: of two swapped files neither is read.
    return fingerprint.digest("asmtune artifact 2", digest, body).encode() + b"\0"


def _cubin(value: Any, where: str) -> bytes:
    return base64.b64decode(text_of(value, where), validate=True)


_READ: Final = {
    "outputs": {"ttir", "ttgir"},
    "metadata": {"num_warps", "shared"},
}
"""Names that the readers of an artifact take for granted, and that are checked here."""


def _check_read(field: str, value: Any, where: str) -> None:
    assembly = {"amdgcn" if "amdgcn" in value else "ptx"} if field == "outputs" else set()
    for name in _READ.get(field, set()) | assembly:
        if not isinstance(value.get(name), str if field == "outputs" else int):
            raise expected(f"an object with {name!r}", where, value)


_CODEC: Final = JsonCodec(decoders={str: text_of, float: time_of, bytes: _cubin}, check=_check_read)
