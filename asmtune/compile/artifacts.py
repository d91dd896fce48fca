"""The cache of compiled artifacts on disk, by content, within a size limit.

Each artifact is one file of gzipped JSON, so nothing in it can execute. A seal in it (`seals`)
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
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from asmtune.base import fingerprint
from asmtune.base.atomic_write import write_whole
from asmtune.base.child import temporary_files
from asmtune.base.errors import InputError, StoreError
from asmtune.base.json_codec import JsonCodec, expected, text_of, time_of
from asmtune.base.settings import Settings
from asmtune.base.trust import (
    UntrustedError,
    fault_line,
    is_news,
    remove_own,
    trusted_file,
    trusted_folder,
)
from asmtune.compile.seals import is_sealed, read_secret, resealed, sealed, secret_of, unsealed
from asmtune.core.records.artifacts import Artifact, Failure


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
        _prepared(private)
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


@dataclass(frozen=True)
class ArtifactFolders:
    """Names the folders of artifacts for a worker, maybe on another machine.

    Attributes:
        folders: where to look; the last one is written to.
        token: digest of the last one's secret, which identifies the folder.
    """

    folders: tuple[Path, ...]
    token: bytes

    @property
    def is_here(self) -> bool:
        """Return whether this process sees the same folder."""
        folder = self.folders[-1]
        with contextlib.suppress(OSError):
            trusted_folder(folder)
            secret = read_secret(folder)
            return secret is not None and _token(secret) == self.token
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
        """Return the cache of a user's settings."""
        return cls(settings.artifacts_dir, settings.artifacts_bytes)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folder, and the private one that replaces it if it cannot be written."""
        private = _fallbacks.get(self.folder)
        return (self.folder,) if private is None else (self.folder, private)

    def prepare(self) -> ArtifactFolders:
        """Check before any work that artifacts can be written, and return where.

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
        """Return the entry of a digest, or None.

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
        """Store an artifact, or a failure that would happen again.

        Raises:
            StoreError: the folder cannot be written.
        """
        if (data := encode_artifact(digest, outcome)) is not None:
            write_artifact(self.folders[-1], digest, data)

    def keep(self, digest: str, data: bytes) -> None:
        """Store an entry that a worker could not write, here or in the private folder.

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
        """Return the encoded entry of a digest, or None; it has no secret in its seal."""
        for folder in self.folders:
            with contextlib.suppress(StoreError):
                secret, data = _stored(folder, digest)
                if secret is not None and is_sealed(digest, data, secret):
                    return resealed(digest, data, b"")
        return None

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

    def _path(self, digest: str) -> Path:
        return _path(self.folder, digest)


def read_artifact(folder: Path, digest: str) -> Artifact | Failure | None:
    """Read the entry of a digest in one folder, or None; delete a damaged one.

    Raises:
        StoreError: the folder cannot be read, or others may write in it.
    """
    secret, data = _stored(folder, digest)
    if secret is None:
        return None
    outcome, path = decode_artifact(digest, data, secret), _path(folder, digest)
    # A read-only folder can still be read.
    with contextlib.suppress(OSError):
        if outcome is None:
            path.unlink(missing_ok=True)
        else:
            os.utime(path)
    return outcome


def _stored(folder: Path, digest: str) -> tuple[bytes | None, bytes]:
    """Return the folder's secret and a digest's entry; without the entry there is no secret.

    Raises:
        StoreError: the folder cannot be read, or others may write in it.
    """
    path = _path(folder, digest)
    with storage_errors(folder):
        try:
            trusted_file(path)
            return read_secret(folder), path.read_bytes()
        except UntrustedError as error:
            if not error.is_file:
                raise
            return read_secret(folder), b""  # planted: it has no seal
        except FileNotFoundError:
            return None, b""


def write_artifact(folder: Path, digest: str, data: bytes) -> None:
    """Write an encoded entry under the folder's own seal, whole or not at all.

    Raises:
        StoreError: the folder cannot be written.
    """
    path = _path(folder, digest)
    with storage_errors(folder):
        trusted_folder(path.parent, make=True)
        own = resealed(digest, data, secret_of(folder))
        write_whole(path, own, private=True, durable=False)  # what is lost is compiled again


def _path(folder: Path, digest: str) -> Path:
    return folder / digest[:2] / f"{digest}{_SUFFIX}"


def _prepared(folder: Path) -> bytes:
    """Make a folder, show that it can be written, and give its token."""
    probe = folder / f"probe-{os.getpid()}-{threading.get_ident()}"
    with storage_errors(folder):
        trusted_folder(folder, make=True)
        try:
            probe.write_bytes(b"\0" * 4096)
            return _token(secret_of(folder))
        finally:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)


def _token(secret: bytes) -> bytes:
    return fingerprint.digest("asmtune artifact folder", secret).encode()


# A crash or a timeout may be caused by the machine, so it is not stored.
_LASTING_KINDS: Final = frozenset(
    {"registers", "shared_memory", "ptxas", "compiler", "kernel", "override"}
)


def encode_artifact(digest: str, outcome: Artifact | Failure) -> bytes | None:
    """Encode the outcome of a digest; None for a failure that may not happen again."""
    if isinstance(outcome, Failure):
        if outcome.kind not in _LASTING_KINDS:
            return None
        entry = {"failure": asdict(outcome)}
    else:
        entry = asdict(outcome) | {"cubin": base64.b64encode(outcome.cubin).decode()}
    return sealed(digest, entry)


def decode_artifact(digest: str, data: bytes, secret: bytes = b"") -> Artifact | Failure | None:
    """Decode the entry of a digest; None if it is damaged, or of another entry or secret."""
    entry = unsealed(digest, data, secret)
    try:
        if "failure" in entry:
            return _CODEC.read(Failure, entry["failure"], "failure")
        return _CODEC.read(Artifact, entry, "artifact")
    except (ValueError, TypeError, InputError):
        return None


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
