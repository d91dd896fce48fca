"""One artifact, or a failure that would happen again, as bytes: gzipped JSON, all through."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from dataclasses import asdict
from typing import Final

from asmtune.core.records.artifacts import Artifact, Failure

# A crash or a timeout may be the machine's doing: not remembered.
_LASTING: Final = frozenset(
    {"registers", "shared_memory", "ptxas", "compiler", "kernel", "override"}
)


def encoded(outcome: Artifact | Failure) -> bytes | None:
    """The bytes that are kept; None for a failure that may not happen again."""
    if isinstance(outcome, Failure):
        if outcome.kind not in _LASTING:
            return None
        entry = {"failure": asdict(outcome)}
    else:
        entry = asdict(outcome) | {"cubin": base64.b64encode(outcome.cubin).decode()}
    return gzip.compress(json.dumps(entry, default=str).encode(), compresslevel=1)


def decoded(data: bytes) -> Artifact | Failure | None:
    """What was encoded; None where the bytes are damaged or of another form."""
    try:
        entry = json.loads(gzip.decompress(data))
        if "failure" in entry:
            return Failure(**entry["failure"])
        return Artifact(**entry | {"cubin": base64.b64decode(entry["cubin"])})
    except (EOFError, gzip.BadGzipFile, zlib.error, ValueError, TypeError, KeyError):
        return None
