"""Who holds a flight: a name that says where its process lives, and whether it is gone."""

from __future__ import annotations

import os
import secrets
import socket
from functools import cache
from pathlib import Path
from typing import Final

from asmtune.base.fingerprint import digest

_HOST_CHARACTERS: Final = 100
_DIGITS: Final = 16

# What a process id means something in: a running kernel, and a namespace of it.
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")


def new_owner() -> str:
    """A name for one claim of this process: `host:process:home:random`."""
    host = socket.gethostname().encode("ascii", "replace").decode()[:_HOST_CHARACTERS]
    return f"{host.replace(':', '.')}:{os.getpid()}:{_home()}:{secrets.token_hex(8)}"


def spoken(owner: str) -> str:
    """An owner as messages name it: `host:process`."""
    return ":".join(owner.split(":")[:2])


def is_gone(owner: str) -> bool:
    """Whether the owner's process has certainly ended.

    That can be told only where it ran under this kernel, and where process ids
    mean the same; of all others nothing is known. A process that has its id now
    makes it look alive.
    """
    parts = owner.split(":")
    if len(parts) != 4 or not _home() or parts[2] != _home() or not parts[1].isdecimal():
        return False
    try:
        os.kill(int(parts[1]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


@cache
def _home() -> str:
    """Digits that processes share whose ids can be compared; empty where that is unknown."""
    try:
        return digest(_BOOT.read_text(), str(_NAMESPACE.readlink()))[:_DIGITS]
    except OSError:
        return ""
