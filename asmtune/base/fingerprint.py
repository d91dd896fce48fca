"""Content digests, canonical JSON and package versions."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib import metadata
from typing import Any, Final


def digest(*parts: str | bytes) -> str:
    """Return the SHA-256 (64 hex digits) of the parts, in order, each with its length."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def canonical(value: Any) -> str:
    """Return JSON text of `value` that does not depend on the order of its keys."""
    return _ENCODER.encode(value)


_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str)


@cache
def version_of(package: str) -> str:
    """Return the version of an installed package, or "absent"."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def versions() -> dict[str, str]:
    """Return the versions that a result depends on, by package name."""
    return {name: version_of(name) for name in ("asmtune", "triton", "torch")}
