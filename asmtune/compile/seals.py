"""Seals of what compiling leaves on disk: whole, of its key, and made by this user.

Such an entry is compiled further, or launched as machine code. So its seal is keyed by a secret
in the folder that only the user can read: whoever could once write in the folder, and not read
the secret, cannot make an entry that is read.
"""

from __future__ import annotations

import gzip
import hmac
import json
import os
import zlib
from pathlib import Path
from typing import Any, Final

from asmtune.base import fingerprint
from asmtune.base.atomic_write import folder_lock, write_whole
from asmtune.base.errors import InputError
from asmtune.base.json_codec import parse_json
from asmtune.base.trust import trusted_file

SECRET: Final = "secret"
_SECRET_BYTES: Final = 32
_HEAD: Final = 10  # bytes of gzip's header
_HAS_COMMENT: Final = b"\x10"  # flag of the header: a text that ends with a zero comes next
_SEAL: Final = 65


def read_secret(folder: Path) -> bytes | None:
    """Read the secret of a folder that is trusted.

    Returns None if it is missing or damaged, if another user may have planted it, or if it is
    root's and only root may read it. Nothing in the folder can be verified then.
    """
    path = folder / SECRET
    try:
        trusted_file(path)
        secret = path.read_bytes()
    except (FileNotFoundError, PermissionError):
        return None
    return secret if len(secret) == _SECRET_BYTES else None


def secret_of(folder: Path) -> bytes:
    """Return the secret of a folder that is trusted; of processes that begin at once one makes it.

    Raises:
        OSError: the secret is missing, and none can be written.
    """
    if (known := read_secret(folder)) is not None:
        return known
    with folder_lock(folder):
        if (known := read_secret(folder)) is None:
            known = os.urandom(_SECRET_BYTES)
            write_whole(folder / SECRET, known, private=True)
    return known


def sealed(digest: str, entry: Any, secret: bytes) -> bytes:
    """Encode a JSON value so that it is read again only whole, and under this digest."""
    data = gzip.compress(json.dumps(entry, default=str).encode(), compresslevel=1)
    head, body = data[:_HEAD], data[_HEAD:]
    return head[:3] + _HAS_COMMENT + head[4:] + _seal(digest, body, secret) + body


def unsealed(digest: str, data: bytes, secret: bytes) -> Any:
    """Decode what `sealed` encoded; None if it is damaged, or of another digest or secret."""
    seal = _seal(digest, data[_HEAD + _SEAL :], secret)
    if not hmac.compare_digest(data[_HEAD : _HEAD + _SEAL], seal):
        return None
    try:
        return parse_json(gzip.decompress(data))
    except (EOFError, OSError, zlib.error, ValueError, InputError):
        return None


def _seal(digest: str, body: bytes, secret: bytes) -> bytes:
    # It binds the content to the key: of two swapped files neither is read.
    content = fingerprint.digest("asmtune artifact 3", digest, body)
    return hmac.digest(secret, content.encode(), "sha256").hex().encode() + b"\0"
