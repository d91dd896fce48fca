"""Processes below this one, as Linux tells them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def descendants(word: str = "", *, own: bool = True) -> dict[int, str]:
    """Live processes below this one whose command line has a word, with it.

    Args:
        word: of the command line.
        own: whether those count that this process started itself, and not another below it.
    """
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            parents[int(folder.name)] = int(parent)
    found: dict[int, str] = {}
    for pid in parents:
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid() != pid and (own or parents[pid] != above):
            line = _line(pid)
            if word in line:
                found[pid] = line
    return found


def _line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def comes_true(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    """Say if something holds within some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())
