"""TTIR and sketches on disk, so that another shape or another process does not make them again.

They lie beside the artifacts, are sealed as these are, and count to the same size limit. TTIR is
also kept in this process, for the next problem of equal specialisation.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from asmtune.base.atomic_write import write_whole
from asmtune.base.errors import InputError
from asmtune.base.fingerprint import digest, version_of
from asmtune.base.json_codec import JsonCodec, text_of
from asmtune.base.trust import trusted_file, trusted_folder
from asmtune.compile.artifacts import ArtifactCache, ArtifactWarning
from asmtune.compile.seals import read_secret, sealed, secret_of, unsealed
from asmtune.core.records.artifacts import Sketch

_MOST_TEXTS: Final = 512
"""TTIR texts kept in the process: 20 to 30 kB each."""

_texts: Final[OrderedDict[str, str]] = OrderedDict()
_lock: Final = threading.Lock()


class StoredTtir:
    """Keeps TTIR by a digest of all that it is made from: in this process, and on disk."""

    def __init__(self, cache: ArtifactCache) -> None:
        self._cache = cache

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        with _lock:
            if key in _texts:
                _texts.move_to_end(key)
                return _texts[key]
        entry = _read(self._cache.folders, key, "ttir")
        if not isinstance(entry, str):
            return None
        self._keep(key, entry)
        return entry

    def put(self, key: str, ttir: str) -> None:
        """Store a text; where the folder cannot be written, for this process alone."""
        self._keep(key, ttir)
        _write(self._cache.folders, key, "ttir", ttir)

    def _keep(self, key: str, ttir: str) -> None:
        with _lock:
            _texts[key] = ttir
            while len(_texts) > _MOST_TEXTS:
                _texts.popitem(last=False)


_CODEC: Final = JsonCodec(decoders={str: text_of})


def read_sketch(folders: Sequence[Path], artifact: str) -> Sketch | None:
    """Return the stored sketch in the place of the artifact of a digest, or None."""
    entry = _read(folders, _sketch_key(artifact), "sketch")
    if entry is None:
        return None
    try:
        sketch = _CODEC.read(Sketch, entry, "sketch")
        whole = {"num_warps", "num_stages", "shared"} <= sketch.metadata.keys()
    except (InputError, TypeError, ValueError):
        return None
    return sketch if whole and sketch.digest == artifact else None


def write_sketch(folders: Sequence[Path], sketch: Sketch) -> None:
    """Store a sketch, if a folder can be written."""
    _write(folders, _sketch_key(sketch.digest), "sketch", asdict(sketch))


def _sketch_key(artifact: str) -> str:
    return digest("sketch", artifact, version_of("asmtune"))


def _path(folder: Path, key: str, kind: str) -> Path:
    return folder / key[:2] / f"{key}.{kind}.json.gz"


def _read(folders: Sequence[Path], key: str, kind: str) -> Any:
    """Return an entry, or None; delete a damaged one, and say so."""
    for folder in folders:
        path = _path(folder, key, kind)
        # A folder that cannot be read has nothing; one that is read-only can still be read.
        with contextlib.suppress(OSError):
            trusted_file(path)
            data, secret = path.read_bytes(), read_secret(folder)
            if secret is None:
                continue
            entry = unsealed(key, data, secret)
            if entry is not None:
                with contextlib.suppress(OSError):
                    os.utime(path)
                return entry
            warnings.warn(
                f"{path}: damaged, so that it is made again", ArtifactWarning, stacklevel=2
            )
            path.unlink(missing_ok=True)
    return None


def _write(folders: Sequence[Path], key: str, kind: str, entry: Any) -> None:
    # What is lost is made again: nothing waits for the disk, and a full one stops nothing.
    for folder in folders[-1:]:
        path = _path(folder, key, kind)
        with contextlib.suppress(OSError):
            trusted_folder(path.parent, make=True)
            write_whole(path, sealed(key, entry, secret_of(folder)), private=True, durable=False)
